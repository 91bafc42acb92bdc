package index_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// received returns the ResourceSlice as an informer decodes it from the API server's response.
func received(t *testing.T, slice *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	t.Helper()
	data, err := slice.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	decoded := &resourceapi.ResourceSlice{}
	if err := decoded.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestSlicesOfEqualNodesShareMemory(t *testing.T) {
	t.Parallel()
	transform := index.NewSliceTransform()
	var nodes [2][]*resourceapi.ResourceSlice
	for i, name := range []string{"n1", "n2"} {
		for _, slice := range publish(t, machine(t, "h100x2", name), 1, 1) {
			slice.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "agent"}}
			object, err := transform(received(t, slice))
			got, ok := object.(*resourceapi.ResourceSlice)
			if err != nil || !ok {
				t.Fatalf("transformed into a %T: %v", object, err)
			}
			slice.ManagedFields = nil
			if diff := cmp.Diff(received(t, slice), got); diff != "" {
				t.Errorf("content of %s (-want +got):\n%s", slice.Name, diff)
			}
			nodes[i] = append(nodes[i], got)
		}
	}
	for i, a := range nodes[0] {
		b := nodes[1][i]
		for j := range a.Spec.SharedCounters {
			checkShared(t, a.Spec.SharedCounters[j].Name, a.Spec.SharedCounters[j].Counters, b.Spec.SharedCounters[j].Counters)
		}
		for j := range a.Spec.Devices {
			checkProfileShared(t, a.Spec.Devices[:j], &a.Spec.Devices[j])
			checkDevices(t, &a.Spec.Devices[j], &b.Spec.Devices[j])
		}
	}
}

// checkDevices checks that two devices share all but the map of attributes and the UUID of the GPU.
func checkDevices(t *testing.T, a, b *resourceapi.Device) {
	t.Helper()
	checkShared(t, a.Name+": capacity", a.Capacity, b.Capacity)
	for i := range a.ConsumesCounters {
		checkShared(t, a.Name+": counters", a.ConsumesCounters[i].Counters, b.ConsumesCounters[i].Counters)
	}
	names := map[*byte]bool{}
	for name := range a.Attributes {
		names[unsafe.StringData(string(name))] = true
	}
	for name, value := range b.Attributes {
		if !names[unsafe.StringData(string(name))] {
			t.Errorf("%s: the name of attribute %s is not shared", a.Name, name)
		}
		if other := a.Attributes[name]; reflect.DeepEqual(other, value) && other.StringValue != value.StringValue || other.IntValue != value.IntValue && *other.IntValue == *value.IntValue {
			t.Errorf("%s: the value of attribute %s is not shared", a.Name, name)
		}
	}
}

// checkProfileShared checks that a device shares the attributes of those before it with the same profile on the same GPU.
func checkProfileShared(t *testing.T, before []resourceapi.Device, d *resourceapi.Device) {
	t.Helper()
	for i := range before {
		if reflect.DeepEqual(before[i].Attributes, d.Attributes) {
			checkShared(t, before[i].Name+" and "+d.Name+": attributes", before[i].Attributes, d.Attributes)
			return
		}
	}
}

func checkShared(t *testing.T, name string, a, b any) {
	t.Helper()
	if reflect.ValueOf(a).Pointer() != reflect.ValueOf(b).Pointer() {
		t.Errorf("%s: not shared", name)
	}
}

// TestHiddenTaintRule has the rule that installer/render writes in mode Additional, and another one for a single device.
func TestHiddenTaintRule(t *testing.T) {
	t.Parallel()
	list := publish(t, machine(t, "h100x2", "n1"), 1, 1)
	rule := func(name string, device *string) *resourceapi.DeviceTaintRule {
		return &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: new(driver), Device: device},
			Taint:          resourceapi.DeviceTaint{Key: name, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset(list[0].DeepCopy(), list[1].DeepCopy(), rule("ours", nil))
		factory := informers.NewSharedInformerFactory(client, 0)
		defer factory.Shutdown()
		defer cancel()
		resources := factory.Resource().V1()
		if err := resources.DeviceTaintRules().Informer().SetTransform(index.NewTaintRuleTransform("ours")); err != nil {
			t.Fatal(err)
		}
		x := newIndex()
		if _, err := x.Follow(ctx, index.Sources{
			Slices: resources.ResourceSlices(), TaintRules: resources.DeviceTaintRules(), Claims: resources.ResourceClaims(),
		}); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		synctest.Wait()
		for _, slice := range known(t, x, "n1").Slices {
			if cached, err := resources.ResourceSlices().Lister().Get(slice.Name); err != nil || slice != cached {
				t.Errorf("%s is not the ResourceSlice of the informer: %v", slice.Name, err)
			}
		}
		broken := list[1].Spec.Devices[0].Name
		if _, err := client.ResourceV1().DeviceTaintRules().Create(ctx, rule("broken", &broken), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var got []string
		for _, d := range known(t, x, "n1").Devices {
			for _, taint := range d.Taints {
				got = append(got, d.Name+" "+taint.Key)
			}
		}
		if diff := cmp.Diff([]string{broken + " broken"}, got); diff != "" {
			t.Errorf("taints (-want +got):\n%s", diff)
		}
	})
}
