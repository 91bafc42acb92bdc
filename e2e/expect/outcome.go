package expect

import (
	"fmt"
	"strings"
)

// Outcome is what came of a subject: what the API server and the containers' logs say.
type Outcome struct {
	Subject Subject
	// Phase is what the subject has come to.
	Phase Phase
	// Explanation is the API server's word on why the subject is not further, or failed.
	Explanation string
	// Pods are the subject's pods by name.
	Pods []Pod
}

// Pod is one pod of an Outcome.
type Pod struct {
	Name, Node string
	// Asked are the requests of the pod's claims, for people.
	Asked      []string
	Containers []Container
}

// Container is one container of a Pod.
type Container struct {
	Name, Log string
	// Grants are the devices that the API server says the container was given.
	Grants []Grant
}

// Seen returns what the container says it can use, and false when it did not run the probe.
func (c Container) Seen() ([]Seen, bool) {
	report, ok := ParseReport(c.Log)
	return report.Devices(), ok
}

// Grants returns every device given to the pod, once.
func (p Pod) Grants() []Grant {
	var grants []Grant
	known := map[string]bool{}
	for _, c := range p.Containers {
		for _, g := range c.Grants {
			if !known[g.String()] {
				known[g.String()] = true
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// logs returns the ends of all logs, for a complaint.
func (o Outcome) logs() string {
	var text strings.Builder
	for _, pod := range o.Pods {
		for _, container := range pod.Containers {
			if container.Log != "" {
				fmt.Fprintf(&text, "(%s, container %s, says %q)", pod.Name, container.Name, lastLines(container.Log))
			}
		}
	}
	return text.String()
}
