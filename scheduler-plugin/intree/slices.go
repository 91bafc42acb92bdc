package intree

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// PrunedSlices returns the ResourceSlices of Tessera's pool on the node with only the chosen devices, the devices that
// are held on the same GPUs, and the counters that these consume. The in-tree allocator decides on the chosen devices
// as it would with all ResourceSlices. The node must not be delegated.
func PrunedSlices(n *index.Node, choice fit.Choice) []*resourceapi.ResourceSlice {
	kept := devicesToKeep(n, choice)
	consumed := counterSetsOf(n, kept)
	var pruned []*resourceapi.ResourceSlice
	for _, slice := range poolSlices(n) {
		devices := keepIf(slice.Spec.Devices, func(d *resourceapi.Device) bool { return kept.Has(d.Name) })
		counters := keepIf(slice.Spec.SharedCounters, func(c *resourceapi.CounterSet) bool { return consumed.Has(c.Name) })
		if len(devices)+len(counters) > 0 {
			pruned = append(pruned, withContent(slice, devices, counters))
		}
	}
	setSliceCount(pruned)
	return pruned
}

// devicesToKeep returns the names of the devices that the in-tree allocator must see.
func devicesToKeep(n *index.Node, choice fit.Choice) sets.Set[string] {
	concerned := make([]bool, len(n.Fit.GPUs))
	kept := sets.New[string]()
	for _, pick := range choice.Picks {
		for _, device := range pick.Devices {
			kept.Insert(n.Devices[device].Name)
			concerned[n.Fit.Devices[device].GPU] = true
		}
	}
	held := sets.New[string]()
	for i := range n.Held {
		if r := &n.Held[i].Result; r.Driver == n.Driver && r.Pool == n.Pool {
			held.Insert(r.Device)
		}
	}
	for i := range n.Fit.Devices {
		if name := n.Devices[i].Name; concerned[n.Fit.Devices[i].GPU] && held.Has(name) {
			kept.Insert(name)
		}
	}
	return kept
}

// counterSetsOf returns the names of the counter sets that the devices consume.
func counterSetsOf(n *index.Node, devices sets.Set[string]) sets.Set[string] {
	names := sets.New[string]()
	for _, d := range n.Devices {
		if devices.Has(d.Name) {
			for _, c := range d.ConsumesCounters {
				names.Insert(c.CounterSet)
			}
		}
	}
	return names
}

// OrderedSlices returns all ResourceSlices of the node, with the devices of Tessera's pool in the order of preference,
// which lists positions of devices. The in-tree allocator takes the first devices that fit.
func OrderedSlices(n *index.Node, preference []int) []*resourceapi.ResourceSlice {
	if n.DelegateReason != nil || len(preference) != len(n.Devices) {
		return n.Slices
	}
	ours := poolSlices(n)
	i := slices.IndexFunc(ours, func(s *resourceapi.ResourceSlice) bool { return len(s.Spec.Devices) > 0 })
	if i < 0 || !sameButDevices(ours) {
		return n.Slices
	}
	devices := make([]resourceapi.Device, len(preference))
	for at, position := range preference {
		devices[at] = *n.Devices[position]
	}
	ordered := []*resourceapi.ResourceSlice{withContent(ours[i], devices, nil)}
	for _, s := range ours {
		if len(s.Spec.SharedCounters) > 0 {
			ordered = append(ordered, withContent(s, nil, s.Spec.SharedCounters))
		}
	}
	setSliceCount(ordered)
	for _, s := range n.Slices {
		if s.Spec.Driver != n.Driver || s.Spec.Pool.Name != n.Pool {
			ordered = append(ordered, s)
		}
	}
	return ordered
}

// sameButDevices reports whether the ResourceSlices with devices differ only in their devices, so that devices can be
// moved between them.
func sameButDevices(list []*resourceapi.ResourceSlice) bool {
	var first *resourceapi.ResourceSliceSpec
	for _, s := range list {
		switch {
		case len(s.Spec.Devices) == 0:
		case first == nil:
			first = &s.Spec
		case !equalPointers(first.NodeName, s.Spec.NodeName) || !equalPointers(first.PartitionTypeAttribute, s.Spec.PartitionTypeAttribute) ||
			!slices.Equal(first.SkipNodeOperations, s.Spec.SkipNodeOperations):
			return false
		}
	}
	return true
}

func equalPointers[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// poolSlices returns the ResourceSlices of the newest generation of Tessera's pool on the node.
func poolSlices(n *index.Node) []*resourceapi.ResourceSlice {
	var ours []*resourceapi.ResourceSlice
	for _, s := range n.Slices {
		if s.Spec.Driver != n.Driver || s.Spec.Pool.Name != n.Pool {
			continue
		}
		if len(ours) > 0 && s.Spec.Pool.Generation > ours[0].Spec.Pool.Generation {
			ours = nil
		}
		if len(ours) == 0 || s.Spec.Pool.Generation == ours[0].Spec.Pool.Generation {
			ours = append(ours, s)
		}
	}
	return ours
}

// WithoutDevices returns a copy of the ResourceSlice without the devices that drop selects.
func WithoutDevices(s *resourceapi.ResourceSlice, drop func(*resourceapi.Device) bool) *resourceapi.ResourceSlice {
	return withContent(s, keepIf(s.Spec.Devices, func(d *resourceapi.Device) bool { return !drop(d) }), s.Spec.SharedCounters)
}

// withContent returns a copy of the ResourceSlice with other content.
func withContent(s *resourceapi.ResourceSlice, devices []resourceapi.Device, counters []resourceapi.CounterSet) *resourceapi.ResourceSlice {
	virtual := *s
	virtual.Spec.Devices = devices
	virtual.Spec.SharedCounters = counters
	return &virtual
}

// setSliceCount makes the ResourceSlices a complete pool.
func setSliceCount(list []*resourceapi.ResourceSlice) {
	for _, s := range list {
		s.Spec.Pool.ResourceSliceCount = int64(len(list))
	}
}

func keepIf[T any](list []T, keep func(*T) bool) []T {
	var kept []T
	for i := range list {
		if keep(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}
