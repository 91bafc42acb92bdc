package exporter

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// holder is who uses a device, as far as it is known: the claim from our records, the rest from
// kubelet.
type holder struct{ namespace, pod, container, claim string }

// holding is one device of a claim.
type holding struct {
	use   gpu.Device
	name  string
	claim prepare.Ref
	// uuid is that of the MIG device, as soon as there is one; empty for every other shape.
	uuid string
	// holders are the containers that use it, or one without a pod while none is known.
	holders []holder
}

// holdings returns what the records hold, in their order. It is pure.
func holdings(records []prepare.Record, containers []Container) []holding {
	var all []holding
	for _, r := range records {
		for _, w := range r.Wanted {
			if w.Admin {
				continue
			}
			h := holding{use: w.Use, name: w.Device, claim: r.Ref, holders: users(r.Ref, w.Result, containers)}
			if w.Use.Shape == gpu.MIG {
				h.uuid = uuidAt(r.Instances, w.Use)
			}
			all = append(all, h)
		}
	}
	return all
}

// users returns the containers that use the claim's device.
func users(claim prepare.Ref, device prepare.Result, containers []Container) []holder {
	var all []holder
	for _, c := range containers {
		if c.Namespace == claim.Namespace && c.Claim == claim.Name && c.Pool == device.Pool && c.Device == device.Device && c.ShareID == device.ShareID {
			all = append(all, holder{c.Namespace, c.Pod, c.Name, claim.Name})
		}
	}
	if all == nil {
		all = []holder{{namespace: claim.Namespace, claim: claim.Name}}
	}
	return all
}

func uuidAt(instances []gpu.Instance, use gpu.Device) string {
	for _, i := range instances {
		if i.GPU == use.GPU && i.Placement == use.Placement {
			return i.UUID
		}
	}
	return ""
}

// common returns what is the same for all holders.
func common(holders []holder) holder {
	if len(holders) == 0 {
		return holder{}
	}
	same := holders[0]
	for _, h := range holders[1:] {
		same = holder{
			agreed(same.namespace, h.namespace), agreed(same.pod, h.pod),
			agreed(same.container, h.container), agreed(same.claim, h.claim),
		}
		// The same name in another namespace, or in another pod, is another thing.
		if same.namespace == "" {
			same = holder{}
		}
		if same.pod == "" {
			same.container = ""
		}
	}
	return same
}

func agreed(a, b string) string {
	if a == b {
		return a
	}
	return ""
}

// byPod returns one holder for every pod among them, in order of namespace and name.
func byPod(holders []holder) []holder {
	type pod struct{ namespace, name string }
	groups := map[pod][]holder{}
	for _, h := range holders {
		if h.pod != "" {
			groups[pod{h.namespace, h.pod}] = append(groups[pod{h.namespace, h.pod}], h)
		}
	}
	var all []holder
	for _, group := range groups {
		all = append(all, common(group))
	}
	slices.SortFunc(all, func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod))
	})
	return all
}
