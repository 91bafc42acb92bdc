package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// crowded returns pods of low priority that hold a host port of every node except the last. Only a filter that the
// plugin does not anticipate rejects those nodes, and preemption would help there.
func crowded(nodes int) []runtime.Object {
	low, preempts := int32(-100), corev1.PreemptLowerPriority
	var pods []runtime.Object
	for i := range nodes - 1 {
		pod := onPort(newPod(fmt.Sprintf("low-%d", i)))
		pod.Spec.NodeName = fmt.Sprintf("node-%d", i)
		pod.Spec.Priority, pod.Spec.PreemptionPolicy = &low, &preempts
		pods = append(pods, pod)
	}
	return pods
}

func onPort(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
	return pod
}

// fragment lets claims hold a memory slice of the first GPU of each node, so that these nodes score best for further
// MIG devices.
func fragment(c *cluster, nodes int) {
	c.tb.Helper()
	for i := range nodes {
		name := fmt.Sprintf("fragment-%d", i)
		c.create(claimFor(name, "1g.10gb", 1))
		pod := newPod(name, name)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: fmt.Sprintf("node-%d", i)}
		c.create(pod)
		c.bound(name)
	}
}

func TestFreeNodeOutsideTheNarrowedOnes(t *testing.T) {
	const nodes = 6
	c := newCluster(t, "candidates: 2", slices.Concat(machines(t, "h100x2", nodes), crowded(nodes))...)
	fragment(c, nodes-1)
	c.create(claimFor("a", "1g.10gb", 1))
	c.create(onPort(newPod("a", "a")))
	if got, want := c.bound("a"), "node-5"; got != want {
		t.Errorf("the pod runs on %s, want %s", got, want)
	}
	for i := range nodes - 1 {
		c.pod(fmt.Sprintf("low-%d", i))
	}
}

func TestNominatedNodeOutsideTheNarrowedOnes(t *testing.T) {
	c := newCluster(t, "candidates: 1", machines(t, "h100x2", 3)...)
	fragment(c, 1)
	c.create(claimFor("a", "1g.10gb", 1))
	pod := newPod("a", "a")
	pod.Status.NominatedNodeName = "node-2"
	c.create(pod)
	if got, want := c.bound("a"), "node-2"; got != want {
		t.Errorf("the pod runs on %s, want the node that it was nominated for, %s", got, want)
	}
}

func TestBrokenGPUBeforeAnEmptyOne(t *testing.T) {
	c := newCluster(t, "", machines(t, "h100x2", 3)...)
	fragment(c, 1)
	for i := range 5 {
		name := fmt.Sprintf("a%d", i)
		c.run(name, "1g.10gb", 1)
		if got, want := c.bound(name), "node-0"; got != want {
			t.Errorf("pod %s runs on %s, want %s, whose GPU is broken already", name, got, want)
		}
	}
	c.run("whole", "gpu", 2)
	if got := c.bound("whole"); got == "node-0" {
		t.Errorf("two GPUs on %s, where one is in use", got)
	}
}

// TestRace creates more pods at once than the nodes have capacity for.
func TestRace(t *testing.T) {
	c := newCluster(t, "", machines(t, "h100x2", 1)...)
	for i := range 20 {
		c.run(fmt.Sprintf("a%d", i), "1g.10gb", 1)
	}
	running := func() (names []string) {
		list, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" {
				names = append(names, pod.Name)
			}
		}
		return names
	}
	c.eventually("14 pods run", func() bool { return len(running()) == 14 })
	held := map[string]string{}
	for _, name := range running() {
		for _, device := range devices(c.claim(name)) {
			if other, ok := held[device]; ok {
				t.Errorf("%s is given to %s and %s", device, other, name)
			}
			held[device] = name
		}
	}
	for _, name := range running()[:3] {
		c.release(name)
	}
	c.eventually("three more run in the place of those that ended", func() bool { return len(running()) == 14 })
}

// release deletes the pod and deallocates its claim, as the claim controller does.
func (c *cluster) release(name string) {
	c.tb.Helper()
	if err := c.client.CoreV1().Pods("default").Delete(c.ctx, name, metav1.DeleteOptions{}); err != nil {
		c.tb.Fatal(err)
	}
	if err := c.client.ResourceV1().ResourceClaims("default").Delete(c.ctx, name, metav1.DeleteOptions{}); err != nil {
		c.tb.Fatal(err)
	}

}

// TestFailedWrite lets the API server reject the first allocations: no allocation may stay assumed.
func TestFailedWrite(t *testing.T) {
	c := newCluster(t, "", machines(t, "h100x2", 1)...)
	var refused atomic.Int32
	c.client.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "status" && refused.Add(1) <= 3 {
			return true, nil, errors.New("no leader")
		}
		return false, nil, nil
	})
	c.run("a", "gpu", 2)
	c.bound("a")
	if got := refused.Load(); got != 4 {
		t.Errorf("%d writes, want three refused ones and one that is taken", got)
	}
	c.release("a")
	c.run("b", "gpu", 2)
	c.bound("b")
}

// meddler changes a DeviceClass after nodes were filtered and restores it for the next attempt.
type meddler struct {
	handle fwk.Handle
	pods   map[string]bool
}

func (*meddler) Name() string { return "Meddler" }

func (m *meddler) PreScore(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if !m.pods[pod.Name] {
		m.pods[pod.Name] = true
		return fwk.AsStatus(m.set(ctx, "false"))
	}
	return nil
}

func (m *meddler) PreFilter(ctx context.Context, _ fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, fwk.AsStatus(m.set(ctx, `device.driver == "gpu.tessera.dev" && device.attributes["gpu.tessera.dev"].type == "gpu"`))
}

func (*meddler) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// set changes the expression of the class and waits until the scheduler has received the change.
func (m *meddler) set(ctx context.Context, expression string) error {
	classes := m.handle.ClientSet().ResourceV1().DeviceClasses()
	class, err := classes.Get(ctx, "gpu", metav1.GetOptions{})
	if err != nil {
		return err
	}
	class.Spec.Selectors[0].CEL.Expression = expression
	if _, err := classes.Update(ctx, class, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for {
		seen, err := m.handle.SharedDRAManager().DeviceClasses().Get("gpu")
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if seen.Spec.Selectors[0].CEL.Expression == expression {
			return nil
		}
	}
}

func TestInTreePluginRefusesTheChoice(t *testing.T) {
	profile := ours("")
	profile.Plugins.PreFilter.Enabled = []schedulerconfig.Plugin{{Name: "Meddler"}}
	profile.Plugins.PreScore.Enabled = []schedulerconfig.Plugin{{Name: "Meddler"}}
	c := start(t, profile, frameworkruntime.Registry{"Meddler": func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return &meddler{handle: h, pods: map[string]bool{}}, nil
	}}, machines(t, "h100x2", 2)...)
	c.run("a", "gpu", 1)
	c.bound("a")
	if got := len(devices(c.claim("a"))); got != 1 {
		t.Errorf("the pod has %d devices, want 1", got)
	}
}

func TestExtendedResourceIsChosen(t *testing.T) {
	c := newCluster(t, "", machines(t, "h100x2", 2)...)
	fragment(c, 1)
	c.create(wants("a", "nvidia.com/mig-1g.10gb", 1))
	if got, want := c.bound("a"), "node-0"; got != want {
		t.Errorf("the pod runs on %s, want %s, whose GPU is broken already", got, want)
	}
	status := c.pod("a").Status.ExtendedResourceClaimStatus
	if status == nil {
		t.Fatal("the pod's status lacks the claim of its extended resource")
	}
	want := []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "nvidia.com/mig-1g.10gb", RequestName: "container-0-request-1"}}
	if diff := cmp.Diff(want, status.RequestMappings); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}
