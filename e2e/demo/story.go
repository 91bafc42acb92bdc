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

// story tells what happens to the nodes of a cluster, a line each with the time since it began. It is safe for concurrent use.
type story struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
	// now is the clock.
	now func() time.Time
	// nodes is what was last told of each node, tainted which nodes have a taint, leaving which pods were seen to go.
	nodes   map[string]string
	tainted map[string]bool
	leaving map[types.UID]bool
}

func newStory(out io.Writer, now func() time.Time) *story {
	return &story{out: out, began: now(), now: now, nodes: map[string]string{}, tainted: map[string]bool{}, leaving: map[types.UID]bool{}}
}

// tell follows the cluster until ctx ends.
func (s *story) tell(ctx context.Context, c *cluster.Cluster) error {
	failed := make(chan error, 3)
	go func() { failed <- cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, s.node) }()
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.DeviceTaintRuleList{}, s.taint) }()
	go func() { failed <- cluster.Follow(ctx, c, &corev1.PodList{}, s.pod) }()
	err := errors.Join(<-failed, <-failed, <-failed)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return err
}

// node tells a new phase or step.
func (s *story) node(node *v1alpha1.GPUNode, deleted bool) bool {
	status := node.Status
	if deleted || status.Phase == "" {
		return false
	}
	text := string(status.Phase)
	if status.Step != "" {
		text += ": " + steps(node)
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
		if failure(status.Reason) {
			text += fmt.Sprintf(": %s: %s", status.Reason, oneLine(status.Message))
		}
	}
	s.say(node.Name, text)
	return false
}

// steps says what the step of a node does.
func steps(node *v1alpha1.GPUNode) string {
	says := map[v1alpha1.UpgradeStep]string{
		v1alpha1.StepTaint: "taint the GPUs", v1alpha1.StepRefuse: "the agent refuses new claims", v1alpha1.StepDrain: "drain the pods that hold GPUs",
		v1alpha1.StepStopAgent: "stop the agent", v1alpha1.StepRemove: "remove the driver", v1alpha1.StepOperate: "change the GPUs",
		v1alpha1.StepStart: "start the agent", v1alpha1.StepValidate: "validate", v1alpha1.StepRestore: "restore",
	}
	if driver := node.Spec.Driver; driver != nil && node.Status.Step == v1alpha1.StepOperate {
		return "install driver " + driver.Version
	}
	return says[node.Status.Step]
}

// failure reports whether a reason is one of something that did not work.
func failure(reason string) bool {
	return strings.HasSuffix(reason, "Failed") || strings.HasSuffix(reason, "Timeout") || strings.HasSuffix(reason, "Blocked")
}

// say prints a line about a node, once.
func (s *story) say(node, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[node] == text {
		return
	}
	s.nodes[node] = text
	s.print(node, text)
}

func (s *story) print(who, text string) {
	fmt.Fprintf(s.out, "  %6.1fs  %-7s %s\n", s.now().Sub(s.began).Seconds(), who, text) //nolint:errcheck // standard output
}

// taintPrefix begins the names of the installer's DeviceTaintRules.
const taintPrefix = "tessera-maintenance-"

// taint tells of the GPUs of a node that are taken out of service and come back.
func (s *story) taint(rule *resourceapi.DeviceTaintRule, deleted bool) bool {
	node, ours := strings.CutPrefix(rule.Name, taintPrefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ours || s.tainted[node] == !deleted {
		return false
	}
	s.tainted[node] = !deleted
	text := fmt.Sprintf("DeviceTaintRule %s: %s", rule.Name, rule.Spec.Taint.Effect)
	if deleted {
		text = fmt.Sprintf("DeviceTaintRule %s is gone", rule.Name)
	}
	s.print(node, text)
	return false
}

// pod tells of the pods that are evicted.
func (s *story) pod(pod *corev1.Pod, deleted bool) bool {
	if pod.DeletionTimestamp == nil || deleted || !evicted(pod) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving[pod.UID] {
		s.leaving[pod.UID] = true
		s.print(pod.Spec.NodeName, fmt.Sprintf("pod %s/%s is evicted", pod.Namespace, pod.Name))
	}
	return false
}

// evicted reports whether a pod ends by the eviction API.
func evicted(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason == "EvictionByEvictionAPI" {
			return true
		}
	}
	return false
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
