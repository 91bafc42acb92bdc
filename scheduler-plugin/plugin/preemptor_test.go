package plugin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// important creates a pod of the priority that requests a device of the class, with a claim of the same name.
func (c *cluster) important(name, class string, priority int32) {
	c.tb.Helper()
	c.create(claimFor(name, class, 1))
	pod := newPod(name, name)
	policy := corev1.PreemptLowerPriority
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	c.create(pod)
}

// fill lets pods of the priority hold every GPU of the cluster except the first, and memory slices of the first.
func fill(c *cluster, gpus int, priority int32) (slices []string) {
	c.tb.Helper()
	for i := range gpus - 1 {
		name := fmt.Sprintf("whole-%d", i)
		c.important(name, "gpu", priority+1)
		c.bound(name)
	}
	for i := range 7 {
		name := fmt.Sprintf("slice-%d", i)
		c.important(name, "1g.10gb", priority)
		c.bound(name)
		slices = append(slices, name)
	}
	return slices
}

// gone reports whether the pod was deleted.
func (c *cluster) gone(name string) bool {
	c.tb.Helper()
	_, err := c.client.CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.tb.Fatal(err)
	}
	return err != nil
}

// freed deallocates the claim of a deleted pod, as the claim controller does.
func (c *cluster) freed(name string) {
	c.tb.Helper()
	claim := c.claim(name)
	claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
	if _, err := c.client.ResourceV1().ResourceClaims("default").UpdateStatus(c.ctx, claim, metav1.UpdateOptions{}); err != nil {
		c.tb.Fatal(err)
	}
}

// evicted waits until count of the pods are deleted and returns them.
func (c *cluster) evicted(pods []string, count int) []string {
	c.tb.Helper()
	var gone []string
	c.eventually(fmt.Sprintf("%d of %q are evicted", count, pods), func() bool {
		gone = slices.DeleteFunc(slices.Clone(pods), func(name string) bool { return !c.gone(name) })
		return len(gone) >= count
	})
	return gone
}

func TestPreemption(t *testing.T) {
	c := newCluster(t, "preemption: Enabled", machines(t, "h100x2", 2)...)
	low := fill(c, 4, 0)
	c.important("high", "3g.40gb", 100)
	// Three MIG devices of the lowest priority are preempted, although one whole GPU would mean fewer pods.
	gone := c.evicted(low, 3)
	c.eventually("the pod is nominated", func() bool { return c.pod("high").Status.NominatedNodeName != "" })
	// Their devices are nominated and not available to other pods, even to those that fit into a part of them.
	c.important("rival", "1g.10gb", 0)
	c.pending("rival")
	for i, name := range gone {
		if i > 0 && c.pod("high").Spec.NodeName != "" {
			t.Errorf("the pod runs after %d of %d victims have released their slices", i, len(gone))
		}
		c.freed(name)
		c.eventually("the scheduler looks again", func() bool { return strings.Contains(c.pending("rival"), "cannot allocate") })
	}
	c.bound("high")
	if got := devices(c.claim("high")); len(got) != 1 {
		t.Errorf("the pod got %q", got)
	}
	c.pending("rival")
	if left := c.evicted(low, 3); len(left) != 3 {
		t.Errorf("%q were evicted, three are enough", left)
	}
	for i := range 3 {
		if name := fmt.Sprintf("whole-%d", i); c.gone(name) {
			t.Errorf("%s was evicted", name)
		}
	}
}

func TestNoEviction(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		// pod modifies the pod of the test case.
		pod func(*corev1.Pod)
	}{
		"when it is disabled":       {"", func(*corev1.Pod) {}},
		"for a pod that must not":   {"preemption: Enabled", func(p *corev1.Pod) { *p.Spec.PreemptionPolicy = corev1.PreemptNever }},
		"for a pod of low priority": {"preemption: Enabled", func(p *corev1.Pod) { *p.Spec.Priority = 0 }},
		"where the pod cannot run":  {"preemption: Enabled", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, test.args, machines(t, "h100x2", 1)...)
			low := fill(c, 2, 0)
			c.create(claimFor("high", "3g.40gb", 1))
			pod := newPod("high", "high")
			priority, policy := int32(100), corev1.PreemptLowerPriority
			pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
			test.pod(pod)
			c.create(pod)
			c.pending("high")
			if gone := c.evicted(append(low, "whole-0"), 0); len(gone) > 0 {
				t.Errorf("%q were evicted", gone)
			}
		})
	}
}

// TestPromiseEnds checks that nominated devices become available as soon as the pod is deleted.
func TestPromiseEnds(t *testing.T) {
	c := newCluster(t, "preemption: Enabled", machines(t, "h100x2", 1)...)
	low := fill(c, 2, 0)
	c.important("high", "3g.40gb", 100)
	gone := c.evicted(low, 3)
	c.important("rival", "1g.10gb", 0)
	c.pending("rival")
	// The pod waits for the last victim, whose deletion is the last event.
	for _, name := range gone[1:] {
		c.freed(name)
	}
	if err := c.client.CoreV1().Pods("default").Delete(c.ctx, "high", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bound("rival")
}

// TestOtherResources lets a pod preempt for CPU and devices together.
func TestOtherResources(t *testing.T) {
	c := newCluster(t, "preemption: Enabled", machines(t, "h100x2", 1)...)
	low := fill(c, 2, 0)
	c.create(claimFor("high", "3g.40gb", 1))
	pod := newPod("high", "high")
	priority, policy := int32(100), corev1.PreemptLowerPriority
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	pod.Spec.Containers[0].Resources.Requests["cpu"] = *newNode("").Status.Allocatable.Cpu()
	c.create(pod)
	allPods := append(low, "whole-0")
	for _, name := range c.evicted(allPods, len(allPods)) {
		c.freed(name)
	}
	c.bound("high")
}
