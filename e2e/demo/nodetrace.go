package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// nodeTrace prints the phases, steps and taints of nodes and the evictions of their pods, each on a line with the time since its
// creation. It is safe for concurrent use.
type nodeTrace struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
	// now is the clock.
	now func() time.Time
	// printed is the last phase and step printed for each node, tainted the nodes with a DeviceTaintRule, evicted the pods whose
	// eviction is printed.
	printed map[string]string
	tainted map[string]bool
	evicted map[types.UID]bool
}

func newNodeTrace(out io.Writer, now func() time.Time) *nodeTrace {
	return &nodeTrace{out: out, began: now(), now: now, printed: map[string]string{}, tainted: map[string]bool{}, evicted: map[types.UID]bool{}}
}

// follow watches GPUNodes, DeviceTaintRules and pods until ctx ends.
func (t *nodeTrace) follow(ctx context.Context, c *cluster.Cluster) error {
	failed := make(chan error, 3)
	go func() { failed <- cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, t.handleNode) }()
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.DeviceTaintRuleList{}, t.handleTaintRule) }()
	go func() { failed <- cluster.Follow(ctx, c, &corev1.PodList{}, t.handlePod) }()
	err := errors.Join(<-failed, <-failed, <-failed)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is no error
	}
	return err
}

// handleNode prints a new phase or step.
func (t *nodeTrace) handleNode(node *v1alpha1.GPUNode, deleted bool) bool {
	status := node.Status
	if deleted || status.Phase == "" {
		return false
	}
	text := string(status.Phase)
	if status.Step != "" {
		text += ": " + stepText(node)
	}
	switch status.Phase {
	case v1alpha1.PhaseReady:
		if agent := status.Agent; agent != nil {
			text += fmt.Sprintf(": driver %s, %d × %s", agent.DriverVersion, agent.GPUs, agent.Product)
		}
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
		text += fmt.Sprintf(": %s: %s", status.Reason, oneLine(status.Message))
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating:
	case v1alpha1.PhaseUpgrading:
		if isFailure(status.Reason) {
			text += fmt.Sprintf(": %s: %s", status.Reason, oneLine(status.Message))
		}
	}
	t.report(node.Name, text)
	return false
}

// stepText describes the action of a node's current step.
func stepText(node *v1alpha1.GPUNode) string {
	texts := map[v1alpha1.UpgradeStep]string{
		v1alpha1.StepTaint: "taint the GPUs", v1alpha1.StepRefuse: "reject new claims", v1alpha1.StepDrain: "evict pods with GPUs",
		v1alpha1.StepStopAgent: "stop the agent", v1alpha1.StepRemove: "remove the driver", v1alpha1.StepOperate: "change the GPUs",
		v1alpha1.StepStart: "start the agent", v1alpha1.StepValidate: "validate", v1alpha1.StepRestore: "restore",
	}
	if driver := node.Spec.Driver; driver != nil && node.Status.Step == v1alpha1.StepOperate {
		return "install driver " + driver.Version
	}
	return texts[node.Status.Step]
}

// isFailure reports whether a reason is that of a failure.
func isFailure(reason string) bool {
	return strings.HasSuffix(reason, "Failed") || strings.HasSuffix(reason, "Timeout") || strings.HasSuffix(reason, "Blocked")
}

// report prints a line about a node unless it repeats the node's previous line.
func (t *nodeTrace) report(node, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.printed[node] == text {
		return
	}
	t.printed[node] = text
	t.print(node, text)
}

func (t *nodeTrace) print(node, text string) {
	fmt.Fprintf(t.out, "  %6.1fs  %-7s %s\n", t.now().Sub(t.began).Seconds(), node, text) //nolint:errcheck // standard output
}

// taintPrefix is the prefix of the names of the installer's DeviceTaintRules.
const taintPrefix = "tessera-maintenance-"

// handleTaintRule prints when the installer's DeviceTaintRule of a node is created and deleted.
func (t *nodeTrace) handleTaintRule(rule *resourceapi.DeviceTaintRule, deleted bool) bool {
	node, found := strings.CutPrefix(rule.Name, taintPrefix)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !found || t.tainted[node] == !deleted {
		return false
	}
	t.tainted[node] = !deleted
	text := fmt.Sprintf("DeviceTaintRule %s: %s", rule.Name, rule.Spec.Taint.Effect)
	if deleted {
		text = fmt.Sprintf("DeviceTaintRule %s deleted", rule.Name)
	}
	t.print(node, text)
	return false
}

// handlePod prints the eviction of a pod.
func (t *nodeTrace) handlePod(pod *corev1.Pod, deleted bool) bool {
	if pod.DeletionTimestamp == nil || deleted || !isEvicted(pod) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.evicted[pod.UID] {
		t.evicted[pod.UID] = true
		t.print(pod.Spec.NodeName, fmt.Sprintf("pod %s/%s evicted", pod.Namespace, pod.Name))
	}
	return false
}

// isEvicted reports whether the eviction API deletes a pod.
func isEvicted(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason == "EvictionByEvictionAPI" {
			return true
		}
	}
	return false
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
