package intree_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

const driver = "gpu.tessera.dev"

// node returns a node of two GPUs on which claims hold these devices.
func node(t *testing.T, held ...string) *index.Node {
	t.Helper()
	n := gputest.Node(t, "h100x2")
	pool, err := wire.Encode(n, wire.Options{Driver: driver, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}}})
	if err != nil {
		t.Fatal(err)
	}
	x := index.New(index.Config{Drivers: []string{driver}})
	for i, s := range pool.Slices {
		x.SetSlice(&resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slice-%d", i), ResourceVersion: "1"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &n.Name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	for i, device := range held {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1"}}
		claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: driver, Pool: pool.Name, Device: device},
		}}}
		x.SetClaim(claim)
	}
	known, ok := x.Node(n.Name)
	if !ok || known.DelegateReason != nil {
		t.Fatalf("the node is not known, or unclear: %v", known.DelegateReason)
	}
	return known
}

// slicesOf returns the positions and names of the devices for 1g.10gb on the GPU.
func slicesOf(t *testing.T, n *index.Node, position int) (positions []int, names []string) {
	t.Helper()
	for i, d := range n.Fit.Devices {
		if d.GPU == position && d.Use.Shape == gpu.MIG && d.Use.Placement.Size == 1 {
			positions, names = append(positions, i), append(names, n.Devices[i].Name)
		}
	}
	return positions, names
}

func TestPrunedHasTheChoiceAndWhatTouchesIt(t *testing.T) {
	empty := node(t)
	_, first := slicesOf(t, empty, 0)
	_, second := slicesOf(t, empty, 1)
	n := node(t, first[3], second[4])
	positions, _ := slicesOf(t, n, 0)
	pruned := intree.PrunedSlices(n, fit.Choice{Picks: []fit.Pick{{Devices: positions[:1]}}})

	var devices, counters []string
	for _, s := range pruned {
		if got := s.Spec.Pool.ResourceSliceCount; got != int64(len(pruned)) {
			t.Errorf("slice %s is one of %d, and there are %d", s.Name, got, len(pruned))
		}
		for _, d := range s.Spec.Devices {
			devices = append(devices, d.Name)
		}
		for _, c := range s.Spec.SharedCounters {
			counters = append(counters, c.Name)
		}
	}
	want := []string{first[0], first[3]}
	slices.Sort(want)
	slices.Sort(devices)
	if diff := cmp.Diff(want, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{n.Devices[positions[0]].ConsumesCounters[0].CounterSet}, counters); diff != "" {
		t.Errorf("counter sets (-want +got):\n%s", diff)
	}
	for _, s := range n.Slices {
		if int(s.Spec.Pool.ResourceSliceCount) != len(n.Slices) {
			t.Errorf("the published slice %s was changed", s.Name)
		}
	}
}

func TestOrderedHasEveryDeviceInTheOrder(t *testing.T) {
	n := node(t)
	preference := make([]int, len(n.Devices))
	for i := range preference {
		preference[i] = len(preference) - 1 - i
	}
	var want, got []string
	for _, position := range preference {
		want = append(want, n.Devices[position].Name)
	}
	sets := map[string]bool{}
	for _, s := range intree.OrderedSlices(n, preference) {
		for _, d := range s.Spec.Devices {
			got = append(got, d.Name)
		}
		for _, c := range s.Spec.SharedCounters {
			sets[c.Name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	for _, d := range n.Devices {
		for _, c := range d.ConsumesCounters {
			if !sets[c.CounterSet] {
				t.Fatalf("device %s consumes %s, which is missing", d.Name, c.CounterSet)
			}
		}
	}
}
