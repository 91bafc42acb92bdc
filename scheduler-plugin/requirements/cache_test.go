package requirements_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// drawOddities changes one published device in a way that may count for a demand.
func drawOddities(t *rapid.T, d *resourceapi.Device) {
	switch rapid.IntRange(0, 8).Draw(t, "oddity") {
	case 0:
		delete(d.Attributes, "productName")
	case 1:
		delete(d.Attributes, "gpu.tessera.dev/index")
		d.Attributes["index"] = resourceapi.DeviceAttribute{IntValue: new(rapid.Int64Range(0, 9).Draw(t, "index"))}
	case 2:
		delete(d.Attributes, "gpu.tessera.dev/index")
		d.Attributes["index"] = resourceapi.DeviceAttribute{IntValues: []int64{1}}
	case 3:
		d.Taints = []resourceapi.DeviceTaint{{Key: rapid.SampledFrom([]string{"worn", "hot"}).Draw(t, "key"), Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	case 4:
		if c, ok := d.Capacity["memory"]; ok {
			c.Value = resource.MustParse("12Gi")
			d.Capacity["memory"] = c
		}
	case 5:
		if c, ok := d.Capacity["memory"]; ok && c.RequestPolicy != nil {
			c.RequestPolicy = &resourceapi.CapacityRequestPolicy{Default: new(resource.MustParse("2Gi")), ValidValues: []resource.Quantity{resource.MustParse("2Gi"), resource.MustParse("20Gi")}}
			d.Capacity["memory"] = c
		}
	case 6:
		d.Capacity["special"] = resourceapi.DeviceCapacity{Value: resource.MustParse("1")}
	case 7:
		d.BindingConditions = []string{"ready"}
	case 8:
		// What expressions see where both names are used is not defined.
		delete(d.Attributes, "index")
		d.Attributes["gpu.tessera.dev/index"] = resourceapi.DeviceAttribute{IntValue: new(int64(7))}
	}
}

// TestRemembersWhatIsTrue compares a reader with cached nodes and one without.
func TestRemembersWhatIsTrue(t *testing.T) {
	t.Parallel()
	c := shapes()
	machines := map[string][]*resourceapi.ResourceSlice{}
	for _, machine := range []string{"h100x2", "t4x1", "a30x4l40sx4"} {
		machines[machine] = published(t, machine, "node")
	}
	rapid.Check(t, func(rt *rapid.T) {
		none := newSite("none", nil)
		veteran := requirements.NewReader(c, none.index)
		claims := []*resourceapi.ResourceClaim{drawClaim(rt, "claim")}
		for i := range 6 {
			var list []*resourceapi.ResourceSlice
			for _, one := range machines[rapid.SampledFrom([]string{"h100x2", "h100x2", "t4x1", "a30x4l40sx4"}).Draw(rt, "machine")] {
				list = append(list, one.DeepCopy())
			}
			for range rapid.IntRange(0, 2).Draw(rt, "odd") {
				one := list[rapid.IntRange(0, len(list)-1).Draw(rt, "slice")]
				if len(one.Spec.Devices) > 0 {
					drawOddities(rt, &one.Spec.Devices[rapid.IntRange(0, len(one.Spec.Devices)-1).Draw(rt, "device")])
				}
			}
			if rapid.IntRange(0, 3).Draw(rt, "foreign") == 0 {
				list = append(list, slice("node", "nic.example.com", "nics", resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
					Name: "nic", AllowMultipleAllocations: new(rapid.Bool().Draw(rt, "shared")),
				}}}))
			}
			n := *newSite("node", list).node(rt)
			// One index would distinguish these, or they are nodes with different names.
			n.Content = uint64(i + 1)
			if rapid.Bool().Draw(rt, "another") {
				n.Name = fmt.Sprintf("node-%d", i)
			}
			got, gotErr := demandsOf(veteran, claims, &n)
			want, wantErr := demandsOf(requirements.NewReader(c, none.index), claims, &n)
			if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				rt.Fatalf("cached: %v, %v (-fresh +cached):\n%s", gotErr, wantErr, diff)
			}
		}
	})
}
