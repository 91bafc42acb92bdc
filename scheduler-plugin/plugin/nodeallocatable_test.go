package plugin_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// witness records, for each pod, the CPUs that its claims add whenever devices are reserved. kube-scheduler's cache has them from then on.
type witness struct {
	mu   sync.Mutex
	cpus map[string][]string
}

func (*witness) Name() string { return "Witness" }

func (w *witness) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	cpus := ""
	for _, status := range pod.Status.NodeAllocatableResourceClaimStatuses {
		for _, mapped := range status.Mapping {
			cpus += mapped.Quantity.String()
		}
	}
	w.cpus[pod.Name] = append(w.cpus[pod.Name], cpus)
	return nil
}

func (*witness) Unreserve(context.Context, fwk.CycleState, *corev1.Pod, string) {}

// cores returns the ResourceSlice of a driver of CPUs whose devices provide 16 CPUs each, and its DeviceClass.
func cores(node string, count int) []runtime.Object {
	slice := nics(node, count)
	slice.Name, slice.Spec.Driver, slice.Spec.Pool.Name = "cpus-"+node, "cpu.example.com", "cpus-"+node
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{
			corev1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{DeviceMultiplier: new(resource.MustParse("16"))}},
		}
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}
	class.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "cpu.example.com"`}}}
	return []runtime.Object{slice, class}
}

// TestNodeAllocatableResources runs pods with devices that provide CPUs of their node (feature gate DRANodeAllocatableResources). The in-tree plugin must give
// the same results: the pods that run, and the CPUs that the scheduler counts from the moment in which it decides.
func TestNodeAllocatableResources(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, kubefeatures.DRANodeAllocatableResources, true)
	thirsty := func(name, cpus string, claims ...string) *corev1.Pod {
		pod := newPod(name, claims...)
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpus)
		return pod
	}
	for name, scenario := range map[string]struct {
		objects []runtime.Object
		steps   []step
		cpus    map[string]string
	}{
		"a claim of CPUs": {cores("node-0", 4), []step{
			running(claimFor("a", "cpu", 2), newPod("a", "a")), // 32 of 64 CPUs
			waiting(thirsty("b", "40")),
			running(thirsty("c", "30")),
		}, map[string]string{"a": "32"}},
		"CPUs and a GPU": {cores("node-0", 4), []step{
			running(claimFor("a1", "cpu", 1), claimFor("a2", "1g.10gb", 1), newPod("a", "a1", "a2")),
			running(claimFor("b", "gpu", 1), newPod("b", "b")),
			waiting(claimFor("c", "gpu", 1), newPod("c", "c")),
			running(claimFor("d1", "cpu", 2), claimFor("d2", "1g.10gb", 1), thirsty("d", "0", "d1", "d2")),
			waiting(claimFor("e", "cpu", 1), newPod("e", "e")),
		}, map[string]string{"a": "16", "d": "32"}},
		"a claim that another pod has": {cores("node-0", 4), []step{
			running(claimFor("a", "cpu", 1), newPod("a", "a")),
			waiting(newPod("b", "a")), // a mapped device is not shared
		}, map[string]string{"a": "16"}},
		"no room for the CPUs": {cores("node-0", 4), []step{
			running(thirsty("a", "60")),
			waiting(claimFor("b", "cpu", 1), newPod("b", "b")),
		}, nil},
		"only GPUs": {cores("node-0", 4), []step{
			running(claimFor("a", "gpu", 1), newPod("a", "a")),
			running(claimFor("b", "1g.10gb", 1), newPod("b", "b")),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := slices.Concat(machines(t, "h100x2", 1), scenario.objects)
			for scheduler, profile := range map[string]schedulerconfig.KubeSchedulerProfile{"tessera": ours(""), "in-tree": stock()} {
				t.Run(scheduler, func(t *testing.T) {
					w := &witness{cpus: map[string][]string{}}
					profile.Plugins.Reserve.Enabled = append(profile.Plugins.Reserve.Enabled, schedulerconfig.Plugin{Name: w.Name()})
					c := start(t, profile, frameworkruntime.Registry{w.Name(): func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return w, nil }}, objects...)
					play(t, c, scenario.steps)
					w.mu.Lock()
					defer w.mu.Unlock()
					for _, s := range scenario.steps {
						if want := scenario.cpus[s.pod]; slices.ContainsFunc(w.cpus[s.pod], func(got string) bool { return got != want }) {
							t.Errorf("pod %s adds the CPUs %q when its devices are reserved, want %q each time", s.pod, w.cpus[s.pod], want)
						}
					}
				})
			}
		})
	}
}
