package index_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

func TestTaintThatIsNotSeen(t *testing.T) {
	name := "node"
	taint := func(key string) resourceapi.DeviceTaint {
		return resourceapi.DeviceTaint{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice", ResourceVersion: "1"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "nic.example.com", NodeName: &name, Pool: resourceapi.ResourcePool{Name: "pool", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "a", Taints: []resourceapi.DeviceTaint{taint("ours"), taint("broken")}}, {Name: "b", Taints: []resourceapi.DeviceTaint{taint("ours")}}},
		},
	}
	before := slice.DeepCopy()
	x := index.New(index.Config{HiddenTaint: "ours"})
	x.SetSlice(slice)
	n, ok := x.Node(name)
	if !ok {
		t.Fatal("the node is not known")
	}
	var got []string
	for _, d := range n.Slices[0].Spec.Devices {
		for _, t := range d.Taints {
			got = append(got, d.Name+" "+t.Key)
		}
	}
	if diff := cmp.Diff([]string{"a broken"}, got); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	x.SetSlice(slice)
	if again, _ := x.Node(name); again != n {
		t.Error("the same slice again makes another node")
	}
	if diff := cmp.Diff(before, slice); diff != "" {
		t.Errorf("the slice itself changed (-want +got):\n%s", diff)
	}
}
