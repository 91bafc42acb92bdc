package exporter

import (
	"cmp"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// consumer identifies the user of a device as far as it is known: the claim is from the records, the rest from kubelet.
type consumer struct{ namespace, pod, container, claim string }

// allocation is one device of a claim.
type allocation struct {
	use   gpu.Device
	name  string
	claim prepare.Ref
	// instance is the MIG device, once there is one; zero for every other shape.
	instance gpu.Instance
	// holders are the containers that use it, or one consumer without a pod if none is known.
	holders []consumer
}

// allocationsOf returns the devices that the records hold, in the order of the records. It is pure.
func allocationsOf(records []prepare.Record, containers []Container) []allocation {
	var all []allocation
	for _, r := range records {
		for _, w := range r.Wanted {
			if w.Admin {
				continue
			}
			h := allocation{use: w.Use, name: w.Device, claim: r.Ref, holders: consumersOf(r.Ref, w.Result, containers)}
			if w.Use.Shape == gpu.MIG {
				h.instance = instanceAt(r.Instances, w.Use)
			}
			all = append(all, h)
		}
	}
	return all
}

// consumersOf returns the containers that use the claim's device.
func consumersOf(claim prepare.Ref, device prepare.Result, containers []Container) []consumer {
	var all []consumer
	for _, c := range containers {
		if c.Namespace == claim.Namespace && c.Claim == claim.Name && c.Pool == device.Pool && c.Device == device.Device && c.ShareID == device.ShareID {
			all = append(all, consumer{c.Namespace, c.Pod, c.Name, claim.Name})
		}
	}
	if all == nil {
		all = []consumer{{namespace: claim.Namespace, claim: claim.Name}}
	}
	return all
}

func instanceAt(instances []gpu.Instance, use gpu.Device) gpu.Instance {
	for _, i := range instances {
		if i.GPU == use.GPU && i.Placement == use.Placement {
			return i
		}
	}
	return gpu.Instance{}
}

// commonLabels returns the labels that are equal for all holders.
func commonLabels(holders []consumer) consumer {
	if len(holders) == 0 {
		return consumer{}
	}
	same := holders[0]
	for _, h := range holders[1:] {
		same = consumer{
			equalOrEmpty(same.namespace, h.namespace), equalOrEmpty(same.pod, h.pod),
			equalOrEmpty(same.container, h.container), equalOrEmpty(same.claim, h.claim),
		}
		// The same name in another namespace, or in another pod, identifies another object.
		if same.namespace == "" {
			same = consumer{}
		}
		if same.pod == "" {
			same.container = ""
		}
	}
	return same
}

func equalOrEmpty(a, b string) string {
	if a == b {
		return a
	}
	return ""
}

// mergeByPod returns one holder per pod, ordered by namespace and name.
func mergeByPod(holders []consumer) []consumer {
	type pod struct{ namespace, name string }
	groups := map[pod][]consumer{}
	for _, h := range holders {
		if h.pod != "" {
			groups[pod{h.namespace, h.pod}] = append(groups[pod{h.namespace, h.pod}], h)
		}
	}
	var all []consumer
	for _, group := range groups {
		all = append(all, commonLabels(group))
	}
	slices.SortFunc(all, func(a, b consumer) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod))
	})
	return all
}
