package expect

import (
	"fmt"
	"slices"
	"strings"
)

// Compare returns what is not as expected, one complaint a line; none means that everything is. The
// others are the outcomes of the same example, among which SameAs finds its pod.
func Compare(o Outcome, others []Outcome) []string {
	e := o.Subject.Expectation
	if o.Phase != e.Phase {
		return []string{strings.TrimSpace(fmt.Sprintf("expected %s, is %s: %s %s", e.Phase, o.Phase, o.Explanation, o.logs()))}
	}
	if e.Phase == Pending || e.Phase == Refused {
		return reason(e, o)
	}
	if len(o.Pods) == 0 {
		return []string{"no pod was found"}
	}
	var complaints []string
	for _, pod := range o.Pods {
		complaints = append(complaints, comparePod(e, pod)...)
	}
	complaints = append(complaints, relation(e.Devices, o.Pods)...)
	complaints = append(complaints, sameAs(e, o, others)...)
	complaints = append(complaints, while(e, o, others)...)
	return append(complaints, over(e, o)...)
}

func reason(e Expectation, o Outcome) []string {
	if strings.Contains(o.Explanation, e.Reason) {
		return nil
	}
	return []string{fmt.Sprintf("expected to be %s because %q, the reason is %q", e.Phase, e.Reason, o.Explanation)}
}

func comparePod(e Expectation, pod Pod) []string {
	var complaints []string
	for name := range e.Containers {
		if !slices.ContainsFunc(pod.Containers, func(c Container) bool { return c.Name == name }) {
			complaints = append(complaints, fmt.Sprintf("%s: no container %s", pod.Name, name))
		}
	}
	slices.Sort(complaints)
	for _, container := range pod.Containers {
		for _, complaint := range compareContainer(e.of(container.Name), container) {
			complaints = append(complaints, fmt.Sprintf("%s, container %s: %s", pod.Name, container.Name, complaint))
		}
	}
	return append(complaints, match(e.Match, pod)...)
}

// match demands that the devices of a pod agree in attributes.
func match(attributes []string, pod Pod) []string {
	var complaints []string
	for _, attribute := range attributes {
		values := map[string][]string{}
		for _, grant := range pod.Grants() {
			value, ok := grant.Attributes[attribute]
			if !ok {
				complaints = append(complaints, fmt.Sprintf("%s: device %s has no attribute %s", pod.Name, grant, attribute))
			}
			values[value] = append(values[value], grant.Device)
		}
		if len(values) > 1 {
			complaints = append(complaints, fmt.Sprintf("%s: devices differ in %s: %v", pod.Name, attribute, values))
		}
	}
	return complaints
}

// relation demands that all containers of the pods see the same devices, or no two a common one.
func relation(r Relation, pods []Pod) []string {
	if r == "" {
		return nil
	}
	var complaints []string
	var first []string
	holder := map[string]string{}
	for _, pod := range pods {
		for _, container := range pod.Containers {
			name := pod.Name + "/" + container.Name
			uuids := container.uuids()
			if first == nil {
				first = uuids
			}
			if r == Same && !slices.Equal(first, uuids) {
				complaints = append(complaints, fmt.Sprintf("%s sees %v, another container of the same devices %v", name, uuids, first))
			}
			for _, uuid := range uuids {
				if other, taken := holder[uuid]; taken && r == Distinct {
					complaints = append(complaints, fmt.Sprintf("%s and %s both see %s", other, name, uuid))
				}
				holder[uuid] = name
			}
		}
	}
	return complaints
}

// uuids returns the UUIDs of what the container sees, sorted.
func (c Container) uuids() []string {
	seen, _ := c.Seen()
	uuids := []string{}
	for _, s := range seen {
		uuids = append(uuids, s.UUID)
	}
	slices.Sort(uuids)
	return uuids
}

func sameAs(e Expectation, o Outcome, others []Outcome) []string {
	if e.SameAs == "" {
		return nil
	}
	other, found := named(e.SameAs, o, others)
	if !found {
		return []string{fmt.Sprintf("expected the same devices as %s, which is not in the manifest", e.SameAs)}
	}
	return relation(Same, slices.Concat(other.Pods, o.Pods))
}

// while demands that the pods ran when those of another subject did.
func while(e Expectation, o Outcome, others []Outcome) []string {
	if e.While == "" {
		return nil
	}
	other, found := named(e.While, o, others)
	if !found {
		return []string{fmt.Sprintf("expected to run while %s does, which is not in the manifest", e.While)}
	}
	var complaints []string
	for _, pod := range o.Pods {
		if !slices.ContainsFunc(other.Pods, pod.overlaps) {
			complaints = append(complaints, fmt.Sprintf("%s did not run while %s did", pod.Name, e.While))
		}
	}
	return complaints
}

// named returns the outcome of another subject in the same manifest, first of all in the same namespace.
func named(name string, o Outcome, others []Outcome) (Outcome, bool) {
	i := slices.IndexFunc(others, func(other Outcome) bool {
		return other.Subject.Name == name && other.Subject.Namespace == o.Subject.Namespace
	})
	if i < 0 {
		i = slices.IndexFunc(others, func(other Outcome) bool { return other.Subject.Name == name })
	}
	if i < 0 {
		return Outcome{}, false
	}
	return others[i], true
}

func over(e Expectation, o Outcome) []string {
	if e.Over == 0 {
		return nil
	}
	devices := map[string]bool{}
	for _, pod := range o.Pods {
		for _, grant := range pod.Grants() {
			devices[grant.String()] = true
		}
	}
	if len(devices) == e.Over {
		return nil
	}
	return []string{fmt.Sprintf("expected the pods to take turns on %d devices, they used %d", e.Over, len(devices))}
}
