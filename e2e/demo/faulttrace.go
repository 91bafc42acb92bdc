package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// milestone is an observation that await waits for. A step of the remediation is a milestone with the step's name.
type milestone string

// The other milestones.
const (
	gpuTainted      milestone = "taint on the GPU's devices"
	podUnhealthy    milestone = "Unhealthy in the pod's status"
	claimUnhealthy  milestone = "claim condition Healthy: False"
	podEvicted      milestone = "eviction of the pod"
	podReplaced     milestone = "replacement pod"
	gpuUntainted    milestone = "removal of the taint"
	historyRecorded milestone = "record in the GPUNode's history"
)

// faultTrace prints the effects of a fault on one GPU and its pod, and the remediation, each on a line with the time since the
// fault. It is safe for concurrent use.
type faultTrace struct {
	out   io.Writer
	began time.Time
	// now is the clock.
	now func() time.Time
	// node, gpu and uuid identify the GPU; app is the Deployment, pod the pod with the GPU, claim its claim.
	node, gpu, uuid, app, claim string
	pod                         types.UID
	// earlier are the IDs of the records in the GPUNode's history from before the fault.
	earlier []string

	mu     sync.Mutex
	slices map[string]resourceapi.ResourceSlice
	// printed is the last line by subject.
	printed map[string]string
	reached map[milestone]bool
	// changed is closed and replaced whenever a milestone is reached. replacement is the pod that replaces the evicted one.
	changed     chan struct{}
	replacement *corev1.Pod
}

// begin starts the clock of the trace. It must be called once, before all other methods.
func (t *faultTrace) begin() {
	t.began = t.now()
	t.slices, t.changed = map[string]resourceapi.ResourceSlice{}, make(chan struct{})
	t.printed, t.reached = map[string]string{}, map[milestone]bool{}
}

// follow watches ResourceSlices, pods, claims and GPUNodes until ctx ends.
func (t *faultTrace) follow(ctx context.Context, c *cluster.Cluster) error {
	failed := make(chan error, 4)
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.ResourceSliceList{}, t.handleSlice) }()
	go func() { failed <- cluster.Follow(ctx, c, &corev1.PodList{}, t.handlePod) }()
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.ResourceClaimList{}, t.handleClaim) }()
	go func() { failed <- cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, t.handleNode) }()
	err := errors.Join(<-failed, <-failed, <-failed, <-failed)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is no error
	}
	return err
}

// await returns when all milestones are reached. If ctx ends first, the error lists the missing ones.
func (t *faultTrace) await(ctx context.Context, milestones ...milestone) error {
	for {
		t.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(milestones), func(m milestone) bool { return t.reached[m] })
		changed := t.changed
		t.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %q: %w", missing, context.Cause(ctx))
		}
	}
}

// report prints a line unless it repeats the subject's previous line, and records a milestone unless that is empty. The caller holds
// the lock.
func (t *faultTrace) report(subject, text string, m milestone) {
	if t.printed[subject] != text {
		t.printed[subject] = text
		fmt.Fprintf(t.out, "  %6.1fs  %-11s %s\n", t.now().Sub(t.began).Seconds(), subject, text) //nolint:errcheck // standard output
	}
	if m != "" && !t.reached[m] {
		t.reached[m] = true
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// handleSlice prints the taints of the GPU's devices and their removal.
func (t *faultTrace) handleSlice(slice *resourceapi.ResourceSlice, deleted bool) bool {
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != t.node {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slices[slice.Name] = *slice
	if deleted {
		delete(t.slices, slice.Name)
	}
	var list []resourceapi.ResourceSlice
	for _, one := range t.slices {
		list = append(list, one)
	}
	for _, r := range wire.Read(list) {
		for _, g := range r.GPUs {
			if g.Name != t.gpu || !r.Complete {
				continue
			}
			taints, tainted := listTaints(g)
			switch {
			case len(taints) > 0:
				t.report("taint", fmt.Sprintf("%s on %d devices of %s", strings.Join(taints, ", "), tainted, t.gpu), gpuTainted)
			case t.reached[gpuTainted]:
				t.report("taint", "removed: "+t.gpu+" can be allocated again", gpuUntainted)
			}
		}
	}
	return false
}

// listTaints returns the taints of a GPU's devices without duplicates, and the number of devices with a taint.
func listTaints(g wire.PublishedGPU) (taints []string, tainted int) {
	for _, d := range g.Devices {
		for _, t := range d.Taints {
			text := t.Key
			if t.Value != "" {
				text += "=" + t.Value
			}
			taints = append(taints, text+":"+string(t.Effect))
		}
		if len(d.Taints) > 0 {
			tainted++
		}
	}
	slices.Sort(taints)
	return slices.Compact(taints), tainted
}

// handlePod prints the health and the eviction of the pod with the GPU, and its replacement.
func (t *faultTrace) handlePod(pod *corev1.Pod, _ bool) bool {
	if pod.Labels["app"] != t.app {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if pod.UID != t.pod {
		if t.reached[podEvicted] && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			t.replacement = pod.DeepCopy()
			t.report("pod", fmt.Sprintf("replacement %s is running on %s", pod.Name, pod.Spec.NodeName), podReplaced)
		}
		return false
	}
	if t.reached[podEvicted] {
		return false
	}
	if pod.DeletionTimestamp != nil && isEvicted(pod) {
		t.report("pod", pod.Name+" evicted", podEvicted)
		return false
	}
	if text := unhealthyStatus(pod); text != "" {
		t.report("pod", pod.Name+": allocatedResourcesStatus: "+text, podUnhealthy)
	}
	return false
}

// unhealthyStatus returns the first Unhealthy resource in a pod's allocatedResourcesStatus as text; empty if there is none.
func unhealthyStatus(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		for _, status := range container.AllocatedResourcesStatus {
			for _, r := range status.Resources {
				if r.Health != corev1.ResourceHealthStatusUnhealthy {
					continue
				}
				text := fmt.Sprintf("%s: %s", status.Name, r.Health)
				if r.Message != nil {
					text += ": " + *r.Message
				}
				return text
			}
		}
	}
	return ""
}

// handleClaim prints the claim's condition Healthy when it is False.
func (t *faultTrace) handleClaim(claim *resourceapi.ResourceClaim, deleted bool) bool {
	if claim.Name != t.claim || deleted {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range claim.Status.Devices {
		for _, condition := range d.Conditions {
			if condition.Type == "Healthy" && condition.Status == metav1.ConditionFalse {
				t.report("claim", fmt.Sprintf("%s: Healthy: False, %s: %s", claim.Name, condition.Reason, condition.Message), claimUnhealthy)
			}
		}
	}
	return false
}

// handleNode prints the step of the GPU's remediation and its record in the history.
func (t *faultTrace) handleNode(node *v1alpha1.GPUNode, _ bool) bool {
	if node.Name != t.node {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, status := range node.Status.Remediations {
		if status.GPU == t.gpu {
			t.report("remediation", fmt.Sprintf("%s: %s", status.Step, oneLine(status.Message)), milestone(status.Step))
		}
	}
	for _, r := range node.Status.History {
		if r.GPU == t.gpu && !slices.Contains(t.earlier, r.ID) {
			text := fmt.Sprintf("%s: %s after %s: %s", strings.Join(r.Faults, ", "), r.Outcome, r.Ended.Sub(r.Began.Time), oneLine(r.Message))
			m := milestone("")
			if r.Outcome == v1alpha1.OutcomeRecovered {
				m = historyRecorded
			}
			t.report("history", text, m)
		}
	}
	return false
}
