// Package nodecheck evaluates nodes as kube-scheduler's other filter plugins do, before they run.
package nodecheck

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Check evaluates nodes for one pod. It is an approximation: it keeps nodes that other plugins will reject out of the
// set of candidates, but those plugins still run on each candidate.
type Check struct {
	config   Config
	logger   klog.Logger
	pod      *corev1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
	request  *framework.Resource
}

// Config is what a Check depends on in addition to the pod.
type Config struct {
	// Nodes are the nodes of the scheduling cycle.
	Nodes fwk.NodeInfoLister
	// ComparisonOperators is the feature TaintTolerationComparisonOperators.
	ComparisonOperators bool
	// ToleratesMaintenance is true for pods that may use GPUs that are out of service.
	ToleratesMaintenance bool
}

// New returns a check for the pod.
func New(ctx context.Context, pod *corev1.Pod, c Config) *Check {
	return &Check{
		config:   c,
		logger:   klog.FromContext(ctx),
		pod:      pod,
		affinity: nodeaffinity.GetRequiredNodeAffinity(pod),
		request:  framework.NewResource(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})),
	}
}

// Allows reports whether the node exists, has cpu, memory and a pod slot left, and IsOpen.
func (c *Check) Allows(name string) bool {
	info, err := c.config.Nodes.Get(name)
	if err != nil || info.Node() == nil {
		return false
	}
	return c.hasRoom(info) && c.IsOpen(info.Node())
}

func (c *Check) hasRoom(info fwk.NodeInfo) bool {
	has, used := info.GetAllocatable(), info.GetRequested()
	return len(info.GetPods()) < has.GetAllowedPodNumber() &&
		fits(c.request.MilliCPU, has.GetMilliCPU()-used.GetMilliCPU()) &&
		fits(c.request.Memory, has.GetMemory()-used.GetMemory())
}

// fits reports whether the request fits into what is free, which is negative on a node whose pods request more than is
// allocatable. As in NodeResourcesFit, a pod that requests nothing fits there too.
func fits(request, free int64) bool { return request <= 0 || request <= free }

// IsOpen reports whether the node's taints, labels and spec let it run the pod.
func (c *Check) IsOpen(node *corev1.Node) bool {
	if _, out := node.Labels[v1alpha1.LabelMaintenance]; out && !c.config.ToleratesMaintenance {
		return false
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append([]corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}, taints...)
	}
	rejects := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	if _, untolerated := corev1helpers.FindMatchingUntoleratedTaint(c.logger, taints, c.pod.Spec.Tolerations, rejects, c.config.ComparisonOperators); untolerated {
		return false
	}
	matches, err := c.affinity.Match(node)
	return err == nil && matches
}
