package plugin_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// maintain takes the GPUs of the node out of service or returns them to service.
func (c *cluster) maintain(name string, out bool) {
	c.tb.Helper()
	node, err := c.client.CoreV1().Nodes().Get(c.ctx, name, metav1.GetOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	node = node.DeepCopy()
	delete(node.Labels, v1alpha1.LabelMaintenance)
	if out {
		node.Labels[v1alpha1.LabelMaintenance] = string(v1alpha1.OperationDriverSwap)
	}
	if _, err := c.client.CoreV1().Nodes().Update(c.ctx, node, metav1.UpdateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// closed returns count machines whose GPUs are out of service.
func closed(tb testing.TB, count int) []runtime.Object {
	tb.Helper()
	objects := machines(tb, "h100x2", count)
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			node.Labels[v1alpha1.LabelMaintenance] = string(v1alpha1.OperationRemoval)
		}
	}
	return objects
}

// tolerating makes the request tolerate devices out of service.
func tolerating(r *resourceapi.DeviceRequest) {
	r.Exactly.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintMaintenance, Operator: resourceapi.DeviceTolerationOpExists}}
}

const outOfService = "the GPUs are out of service (node label tessera.dev/maintenance)"

func TestMaintenance(t *testing.T) {
	scenarios := map[string]step{
		"without claims":           running(newPod("a")),
		"a claim":                  waiting(claimFor("a", "gpu", 1), newPod("a", "a")),
		"an extended resource":     waiting(wants("a", "nvidia.com/gpu", 1)),
		"a claim that tolerates":   running(with(claimFor("a", "gpu", 1), tolerating), newPod("a", "a")),
		"one of two tolerates":     waiting(with(claimFor("a1", "gpu", 1), tolerating), claimFor("a2", "1g.10gb", 1), newPod("a", "a1", "a2")),
		"another driver's devices": running(claimFor("a", "nic", 1), newPod("a", "a")),
	}
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "", append(closed(t, 1), nics("node-0", 1))...)
			play(t, c, []step{s})
			if !s.refused {
				return
			}
			if message := c.pending(s.pod); !strings.Contains(message, outOfService) {
				t.Errorf("refused with %q", message)
			}
			c.maintain("node-0", false)
			c.bound(s.pod)
		})
	}
}

// TestMaintenanceOfAnAllocatedClaim covers a second pod of an allocated claim, which would otherwise be rejected in
// every attempt.
func TestMaintenanceOfAnAllocatedClaim(t *testing.T) {
	before := newCluster(t, "", append(machines(t, "h100x2", 1), nics("node-0", 1))...)
	play(t, before, []step{
		running(claimFor("a", "gpu", 1), newPod("a1", "a")),
		running(claimFor("n", "nic", 1), newPod("n1", "n")),
		running(with(claimFor("v", "1g.10gb", 1), tolerating), newPod("v1", "v")),
	})
	objects := append(closed(t, 1), nics("node-0", 1))
	for _, name := range []string{"a", "n", "v"} {
		objects = append(objects, before.claim(name))
	}
	c := newCluster(t, "", objects...)
	play(t, c, []step{
		waiting(newPod("a2", "a")),
		waiting(claimFor("b", "1g.10gb", 1), newPod("a3", "a", "b")),
		running(newPod("n2", "n")),
		running(newPod("v2", "v")),
	})
	for _, pod := range []string{"a2", "a3"} {
		if message := c.pending(pod); !strings.Contains(message, outOfService) {
			t.Errorf("%s: refused with %q", pod, message)
		}
	}
	c.maintain("node-0", false)
	c.bound("a2")
	c.bound("a3")
}

// TestMaintenanceIsNoCandidate checks that nodes out of service do not use up the candidates of an attempt, and that
// preemption does not evict pods on them.
func TestMaintenanceIsNoCandidate(t *testing.T) {
	objects := closed(t, 8)
	const open = "node-7"
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok && node.Name == open {
			delete(node.Labels, v1alpha1.LabelMaintenance)
		}
	}
	c := newCluster(t, "candidates: 2\n", objects...)
	for _, name := range []string{"a", "b"} {
		c.run(name, "gpu", 1)
		if got := c.bound(name); got != open {
			t.Errorf("%s runs on %s", name, got)
		}
		for _, condition := range c.pod(name).Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				t.Errorf("%s was refused first: %s", name, condition.Message)
			}
		}
	}
	c.run("c", "gpu", 1)
	c.pending("c")
}
