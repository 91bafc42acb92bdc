package fleet

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Level is how much of a fleet is allocated before the pods are created.
type Level string

// The levels. Each includes those before it. Full leaves one GPU in twenty free.
const (
	Empty Level = "empty"
	Half  Level = "half full"
	Full  Level = "full"
)

// Within are the levels up to this one that add claims, in order.
func (l Level) Within() []Level {
	switch l {
	case Half:
		return []Level{Half}
	case Full:
		return []Level{Half, Full}
	case Empty:
	}
	return nil
}

// seed makes the same fleets in every run.
const seed = 20261122

// carved are the uses of a GPU, each as often as its share: whole for nil, else the names of the MIG
// profiles on it. Some leave a part of the GPU free.
func carved() [][]string {
	return [][]string{
		nil, nil, nil,
		{"1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"},
		{"3g.40gb", "4g.40gb"}, {"3g.40gb", "4g.40gb"},
		{"2g.20gb", "2g.20gb", "3g.40gb"},
		{"1g.10gb"}, {"3g.40gb"}, {"1g.10gb", "2g.20gb"},
	}
}

// Held are the allocated claims that the level adds to a node: one per GPU in use, or a single one where
// only whole GPUs are offered.
func (f *Fleet) Held(node int, level Level) ([]*resourceapi.ResourceClaim, error) {
	random := rand.New(rand.NewPCG(seed, uint64(node)))
	ways := carved()
	var claims []*resourceapi.ResourceClaim
	var whole []string
	for _, g := range f.template.GPUs {
		drawn, way := taken(random.Float64()), ways[random.IntN(len(ways))]
		if drawn != level {
			continue
		}
		if !f.carves() {
			whole = append(whole, wholeDevice(g))
			continue
		}
		devices, err := use(g, way)
		if err != nil {
			return nil, err
		}
		claims = append(claims, f.allocated(fmt.Sprintf("held-%s-%s", f.Name(node), g.Name()), node, devices))
	}
	if len(whole) > 0 {
		claims = append(claims, f.allocated(fmt.Sprintf("held-%s-%s", f.Name(node), strings.ReplaceAll(string(level), " ", "-")), node, whole))
	}
	return claims, nil
}

func wholeDevice(g gpu.GPU) string {
	return wire.DeviceName(gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}})
}

// taken is the level at which a GPU is used first; Empty means never.
func taken(drawn float64) Level {
	switch {
	case drawn < 0.5:
		return Half
	case drawn < 0.95:
		return Full
	}
	return Empty
}

// carves reports whether the nodes offer MIG.
func (f *Fleet) carves() bool {
	for _, shape := range f.options.Offer.Shapes {
		if shape == gpu.MIG {
			return true
		}
	}
	return false
}

// use returns the names of the devices of a way to use the GPU.
func use(g gpu.GPU, profiles []string) ([]string, error) {
	if profiles == nil {
		return []string{wholeDevice(g)}, nil
	}
	var ids []int
	for _, name := range profiles {
		for _, p := range g.Geometry.Profiles() {
			if p.Name == name {
				ids = append(ids, p.ID)
			}
		}
	}
	placements, err := g.Geometry.Layout(g.Geometry.Empty(), ids)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range placements {
		names = append(names, wire.DeviceName(gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: p}}))
	}
	return names, nil
}

// allocated returns a claim that holds the devices of a node.
func (f *Fleet) allocated(name string, node int, devices []string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name), Finalizers: []string{resourceapi.Finalizer},
	}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{request(Driver, len(devices))}
	claim.Status.Allocation = f.allocation(node, devices)
	return claim
}

func (f *Fleet) allocation(node int, devices []string) *resourceapi.AllocationResult {
	allocation := &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{f.Name(node)}}},
	}}}}
	for _, device := range devices {
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: requestName, Driver: Driver, Pool: wire.PoolName(f.Name(node), Driver), Device: device,
		})
	}
	return allocation
}

// Anything is an allocation of some device of the node, without a check that it is free.
func (f *Fleet) Anything(node int) *resourceapi.AllocationResult {
	for _, slice := range f.shared.Slices {
		for _, device := range slice.Devices {
			return f.allocation(node, []string{device.Name})
		}
	}
	return f.allocation(node, nil)
}
