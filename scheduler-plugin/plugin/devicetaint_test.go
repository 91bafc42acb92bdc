package plugin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// firstGPU is the first GPU of the machine of these tests, lastSlice a memory slice of it.
const firstGPU = "gpu-0000-1b-00-0"

var lastSlice = gpu.Placement{Profile: 19, Start: 6, Size: 1}

// illness is the state of the first GPU of a machine of two.
type illness struct {
	events     []gpu.Event
	conditions []gpu.Signal
	// held is the remedy for which the GPU is held.
	held string
	// evict selects the effect NoExecute for taints.
	evict bool
}

// published returns the ResourceSlices of the machine as its agent publishes them.
func (i illness) published(tb testing.TB) []*resourceapi.ResourceSlice {
	tb.Helper()
	node := gputest.Node(tb, "h100x2")
	node.Name = "node-0"
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var health gpu.Health
	for _, e := range i.events {
		e.GPU, e.At = firstGPU, noon
		health = health.Note(gpu.Rules{}, e, "boot")
	}
	for _, s := range i.conditions {
		health = health.Check(gpu.Rules{}, gpu.Checkup{GPU: firstGPU, Conditions: []gpu.Condition{{Signal: s, Present: true}}, At: noon}, "boot")
	}
	node.GPUs[0].Faults, node.GPUs[0].Held = health.InEffect(), i.held
	list := publishedOf(tb, node)
	for _, s := range list {
		for _, d := range s.Spec.Devices {
			for k := range d.Taints {
				if i.evict && d.Taints[k].Effect == resourceapi.DeviceTaintEffectNoSchedule {
					d.Taints[k].Effect = resourceapi.DeviceTaintEffectNoExecute
				}
			}
		}
	}
	return list
}

// machine returns all objects that a scheduler needs for the machine.
func (i illness) machine(tb testing.TB) []runtime.Object {
	tb.Helper()
	objects := append(classes(), newNode("node-0"))
	for _, s := range i.published(tb) {
		objects = append(objects, s)
	}
	return objects
}

// tolerates adds a toleration of a taint of the driver to the request. An empty value tolerates any value; every effect
// is tolerated.
func tolerates(key, value string) func(*resourceapi.DeviceRequest) {
	toleration := resourceapi.DeviceToleration{Key: driver + "/" + key, Operator: resourceapi.DeviceTolerationOpExists}
	if value != "" {
		toleration.Operator, toleration.Value = resourceapi.DeviceTolerationOpEqual, value
	}
	return func(r *resourceapi.DeviceRequest) { r.Exactly.Tolerations = []resourceapi.DeviceToleration{toleration} }
}

// TestIllness checks which devices claims get on a machine whose first GPU is unhealthy. The in-tree plugin must give
// the same results.
func TestIllness(t *testing.T) {
	fallen := illness{events: []gpu.Event{{XID: 79}}}
	hit := illness{events: []gpu.Event{{XID: 94, Placement: lastSlice}}}
	slice := func(name string) []runtime.Object {
		return []runtime.Object{claimFor(name, "1g.10gb", 1), newPod(name, name)}
	}
	many := func(n int) (steps []step) {
		for i := range n {
			steps = append(steps, running(slice(string(rune('a'+i)))...))
		}
		return steps
	}
	scenarios := map[string]struct {
		illness illness
		steps   []step
		// barred selects devices that must not be allocated.
		barred func(device string) bool
	}{
		"a GPU that is lost to claims": {fallen, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			waiting(claimFor("b", "gpu", 1), newPod("b", "b")),
			waiting(slice("c")...),
			waiting(claimFor("d", "timeshare", 1), newPod("d", "d")),
		}, func(device string) bool { return strings.HasPrefix(device, firstGPU) }},
		"two of two GPUs": {fallen, []step{waiting(claimFor("a", "gpu", 2), newPod("a", "a"))}, nil},
		"evicting": {illness{events: fallen.events, evict: true}, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			waiting(claimFor("b", "gpu", 1), newPod("b", "b")),
			running(with(claimFor("c", "gpu", 1), tolerates("xid", "79")), newPod("c", "c")),
		}, nil},
		"its neighbours are given": {hit, append(many(13), waiting(slice("z")...)), func(device string) bool { return device == firstGPU+"-mig-19-6" }},
		"what overlaps is not": {hit, []step{running(claimFor("a", "7g.80gb", 1), newPod("a", "a")), waiting(claimFor("b", "7g.80gb", 1), newPod("b", "b")), running(claimFor("c", "3g.40gb", 1), newPod("c", "c"))}, func(device string) bool {
			return device == firstGPU || device == firstGPU+"-mig-9-4" || device == firstGPU+"-mig-0-0"
		}},
		"a toleration": {fallen, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(with(claimFor("b", "gpu", 1), tolerates("xid", "")), newPod("b", "b")),
		}, nil},
		"a toleration of another number": {fallen, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			waiting(with(claimFor("b", "gpu", 1), tolerates("xid", "48")), newPod("b", "b")),
		}, nil},
		"one of two taints is tolerated": {illness{events: fallen.events, conditions: []gpu.Signal{gpu.SignalECC}}, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			waiting(with(claimFor("b", "gpu", 1), tolerates("xid", "")), newPod("b", "b")),
		}, nil},
		"held for a remedy, and validated": {illness{held: "XID 79"}, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			waiting(claimFor("b", "gpu", 1), newPod("b", "b")),
			running(with(claimFor("c", "gpu", 1), tolerates("remediation", "")), newPod("c", "c")),
		}, nil},
		"an extended resource": {fallen, []step{running(wants("a", "nvidia.com/gpu", 1)), waiting(wants("b", "nvidia.com/gpu", 1))}, nil},
	}
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			for scheduler, c := range map[string]func(testing.TB, []runtime.Object) *cluster{
				"tessera": func(tb testing.TB, o []runtime.Object) *cluster { return newCluster(tb, "", o...) },
				"in-tree": func(tb testing.TB, o []runtime.Object) *cluster { return newStockCluster(tb, o...) },
			} {
				t.Run(scheduler, func(t *testing.T) {
					c := c(t, scenario.illness.machine(t))
					play(t, c, scenario.steps)
					for _, s := range scenario.steps {
						for _, claim := range c.pod(s.pod).Spec.ResourceClaims {
							given := devices(c.claim(*claim.ResourceClaimName))
							if scenario.barred != nil && slices.ContainsFunc(given, scenario.barred) {
								t.Errorf("%s got %v", s.pod, given)
							}
						}
					}
				})
			}
		})
	}
}

// TestWarning checks that a fault which is only reported changes no choice.
func TestWarning(t *testing.T) {
	given := func(i illness) (all []string) {
		c := newCluster(t, "", i.machine(t)...)
		for i, class := range []string{"1g.10gb", "gpu", "2g.20gb", "3g.40gb"} {
			name := string(rune('a' + i))
			c.run(name, class, 1)
			c.bound(name)
			all = append(all, devices(c.claim(name))...)
		}
		return all
	}
	well, hot := given(illness{}), given(illness{conditions: []gpu.Signal{gpu.SignalHeat}, events: []gpu.Event{{XID: 13}, {XID: 66, Placement: lastSlice}}})
	if !slices.Equal(well, hot) {
		t.Errorf("well %v, hot %v", well, hot)
	}
}

// TestRecovery checks that a pod which waits for an unhealthy GPU runs after the GPU recovers.
func TestRecovery(t *testing.T) {
	fallen := illness{events: []gpu.Event{{XID: 79}}}
	c := newCluster(t, "", fallen.machine(t)...)
	c.run("a", "gpu", 1)
	c.bound("a")
	c.run("b", "gpu", 1)
	c.pending("b")
	c.publish(illness{}.published(t))
	c.bound("b")
}

// TestAllocatedDeviceHeldForRemediation checks replacement pods of a claim that was allocated before its GPU was held.
func TestAllocatedDeviceHeldForRemediation(t *testing.T) {
	const message = "allocated device " + firstGPU + " is held for remediation (device taint " + driver + "/remediation)"
	admin := func(r *resourceapi.DeviceRequest) { r.Exactly.AdminAccess = new(true) }
	held := illness{held: "XID 79"}
	bothGPUs := func() *resourceapi.ResourceClaim { return claimFor("a", "gpu", 2) }
	tests := map[string]struct {
		claim    *resourceapi.ResourceClaim
		after    illness
		rejected bool
	}{
		"held":                         {bothGPUs(), held, true},
		"held with NoExecute":          {bothGPUs(), illness{held: "XID 79", evict: true}, true},
		"tolerated":                    {with(bothGPUs(), tolerates("remediation", "")), held, false},
		"other taint tolerated":        {with(bothGPUs(), tolerates("xid", "")), held, true},
		"monitor with admin access":    {with(claimFor("a", "monitor", 2), admin), held, false},
		"fault without a held GPU":     {bothGPUs(), illness{events: []gpu.Event{{XID: 79}}}, false},
		"MIG device of a GPU not held": {claimFor("a", "1g.10gb", 1), held, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			healthy := illness{}
			first := newCluster(t, "", healthy.machine(t)...)
			if strings.HasPrefix(name, "MIG") {
				// The first GPU is full, so the MIG device is on the second one.
				play(t, first, []step{running(with(claimFor("full", "gpu", 1), onFirstGPU), newPod("full", "full"))})
			}
			play(t, first, []step{running(test.claim, newPod("a1", "a"))})

			second := newCluster(t, "", append(test.after.machine(t), first.claim("a"))...)
			second.create(newPod("a2", "a"))
			if !test.rejected {
				second.bound("a2")
				return
			}
			if got := second.pending("a2"); !strings.Contains(got, message) {
				t.Errorf("rejected with %q, want %q", got, message)
			}
			second.publish(healthy.published(t))
			second.bound("a2")
		})
	}
}

// TestPartlyAllocatedPodOfAHeldGPU checks a pod that has an unallocated claim in addition to one on a held GPU.
func TestPartlyAllocatedPodOfAHeldGPU(t *testing.T) {
	healthy, held := illness{}, illness{held: "XID 79"}
	first := newCluster(t, "", healthy.machine(t)...)
	play(t, first, []step{running(with(claimFor("a", "gpu", 1), onFirstGPU), newPod("a1", "a"))})
	second := newCluster(t, "", append(held.machine(t), first.claim("a"))...)
	play(t, second, []step{waiting(claimFor("b", "gpu", 1), newPod("a2", "a", "b"))})
	second.publish(healthy.published(t))
	second.bound("a2")
}

// onFirstGPU selects the first GPU.
func onFirstGPU(r *resourceapi.DeviceRequest) {
	expression := fmt.Sprintf("device.attributes[%q].index == 0", driver)
	r.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// publish updates the ResourceSlices in place.
func (c *cluster) publish(list []*resourceapi.ResourceSlice) {
	c.tb.Helper()
	for _, s := range list {
		known, err := c.client.ResourceV1().ResourceSlices().Get(c.ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			c.tb.Fatal(err)
		}
		known = known.DeepCopy()
		known.Spec = s.Spec
		if _, err := c.client.ResourceV1().ResourceSlices().Update(c.ctx, known, metav1.UpdateOptions{}); err != nil {
			c.tb.Fatal(err)
		}
	}
}
