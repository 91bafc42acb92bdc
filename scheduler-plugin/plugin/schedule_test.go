package plugin_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// step creates objects, among them one pod, and states whether it gets a node.
type step struct {
	objects []runtime.Object
	pod     string
	refused bool
}

// running is a step whose pod gets a node, waiting one whose pod does not.
func running(objects ...runtime.Object) step {
	s := step{objects: objects}
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			s.pod = pod.Name
		}
	}
	return s
}

func waiting(objects ...runtime.Object) step {
	s := running(objects...)
	s.refused = true
	return s
}

// with returns the claim with its request changed.
func with(claim *resourceapi.ResourceClaim, change func(*resourceapi.DeviceRequest)) *resourceapi.ResourceClaim {
	change(&claim.Spec.Devices.Requests[0])
	return claim
}

// either returns a claim for the first available of the classes.
func either(name string, classes ...string) *resourceapi.ResourceClaim {
	claim := claimFor(name, classes[0], 1)
	claim.Spec.Devices.Requests[0].Exactly = nil
	for i, class := range classes {
		claim.Spec.Devices.Requests[0].FirstAvailable = append(claim.Spec.Devices.Requests[0].FirstAvailable, resourceapi.DeviceSubRequest{
			Name: fmt.Sprintf("s%d", i), DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		})
	}
	return claim
}

// wants returns a pod that requests an extended resource.
func wants(name, resourceName string, count int64) *corev1.Pod {
	pod := newPod(name)
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceName(resourceName)] = *resource.NewQuantity(count, resource.DecimalSI)
	return pod
}

// nics returns a ResourceSlice of another driver on the node, or for all nodes if the name is empty.
func nics(node string, count int) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "nics-" + node},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "nic.example.com", NodeName: &node, Pool: resourceapi.ResourcePool{Name: "nics-" + node, Generation: 1, ResourceSliceCount: 1}},
	}
	if node == "" {
		everywhere := true
		slice.Spec.NodeName, slice.Spec.AllNodes = nil, &everywhere
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("nic-%d", i)})
	}
	return slice
}

// allOf makes the request demand all devices of a node.
func allOf(r *resourceapi.DeviceRequest) {
	r.Exactly.AllocationMode, r.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
}

// TestScheduling checks which pods run. The in-tree plugin must give the same results.
func TestScheduling(t *testing.T) {
	admin := func(r *resourceapi.DeviceRequest) {
		yes := true
		r.Exactly.AdminAccess = &yes
	}
	scenarios := map[string]struct {
		objects []runtime.Object
		steps   []step
	}{
		"without claims": {nil, []step{running(newPod("a"))}},
		"one slice":      {nil, []step{running(claimFor("a", "1g.10gb", 1), newPod("a", "a"))}},
		"both GPUs, then nothing is left": {nil, []step{
			running(claimFor("a", "gpu", 2), newPod("a", "a")),
			waiting(claimFor("b", "1g.10gb", 1), newPod("b", "b")),
		}},
		"more than the node has":           {nil, []step{waiting(claimFor("a", "gpu", 3), newPod("a", "a"))}},
		"a class that is missing":          {nil, []step{waiting(claimFor("a", "none", 1), newPod("a", "a"))}},
		"a claim that comes after its pod": {nil, []step{running(newPod("a", "a"), claimFor("a", "gpu", 1))}},
		"two claims":                       {nil, []step{running(claimFor("a1", "3g.40gb", 1), claimFor("a2", "gpu", 1), newPod("a", "a1", "a2"))}},
		"a shared claim": {nil, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(newPod("b", "a")),
		}},
		"a claim that is allocated and one that is not": {nil, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(claimFor("b", "1g.10gb", 1), newPod("b", "a", "b")),
		}},
		"the second alternative": {nil, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(claimFor("b", "1g.10gb", 1), newPod("b", "b")),
			running(either("c", "gpu", "1g.10gb"), newPod("c", "c")),
		}},
		"time slices": {nil, []step{
			running(claimFor("a", "timeshare", 1), newPod("a", "a")),
			running(claimFor("b", "timeshare", 1), newPod("b", "b")),
			running(claimFor("c", "gpu", 1), newPod("c", "c")),
		}},
		"all GPUs": {nil, []step{
			running(with(claimFor("a", "gpu", 1), allOf), newPod("a", "a")),
			waiting(claimFor("b", "gpu", 1), newPod("b", "b")),
		}},
		"not all GPUs are free": {nil, []step{
			running(claimFor("a", "1g.10gb", 1), newPod("a", "a")),
			waiting(with(claimFor("b", "gpu", 1), allOf), newPod("b", "b")),
		}},
		"admin access to a GPU in use": {nil, []step{
			running(claimFor("a", "gpu", 2), newPod("a", "a")),
			running(with(claimFor("b", "monitor", 1), admin), newPod("b", "b")),
		}},
		"an extended resource": {nil, []step{
			running(wants("a", "nvidia.com/gpu", 2)),
			waiting(wants("b", "nvidia.com/mig-1g.10gb", 1)),
		}},
		"an extended resource and a claim": {nil, []step{
			func() step {
				pod := wants("a", "nvidia.com/mig-1g.10gb", 2)
				pod.Spec.ResourceClaims = newPod("a", "a").Spec.ResourceClaims
				return running(claimFor("a", "gpu", 1), pod)
			}(),
		}},
		"with another driver's device": {[]runtime.Object{nics("node-0", 1)}, []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(claimFor("b1", "nic", 1), claimFor("b2", "gpu", 1), newPod("b", "b1", "b2")),
			waiting(claimFor("c", "nic", 1), newPod("c", "c")),
		}},
		"a device that roams": {[]runtime.Object{nics("", 1)}, []step{
			running(claimFor("a1", "nic", 1), claimFor("a2", "gpu", 1), newPod("a", "a1", "a2")),
			waiting(claimFor("b", "nic", 1), newPod("b", "b")),
		}},
	}
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			objects := slices.Concat(machines(t, "h100x2", 1), scenario.objects)
			t.Run("tessera", func(t *testing.T) { play(t, newCluster(t, "", objects...), scenario.steps) })
			t.Run("in-tree", func(t *testing.T) { play(t, newStockCluster(t, objects...), scenario.steps) })
		})
	}
}

func play(t *testing.T, c *cluster, steps []step) {
	t.Helper()
	for _, s := range steps {
		for _, object := range s.objects {
			c.create(object)
		}
		if s.refused {
			t.Log(c.pending(s.pod))
			continue
		}
		c.bound(s.pod)
		for _, claim := range c.pod(s.pod).Spec.ResourceClaims {
			if len(devices(c.claim(*claim.ResourceClaimName))) == 0 {
				t.Errorf("pod %s runs, and its claim %s holds nothing", s.pod, *claim.ResourceClaimName)
			}
		}
	}
}
