// Package nodestate reads the state of single nodes from the cache: the Node, its GPUNode, its operand pods, its faults and what its agent publishes.
package nodestate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Observation is one node as it was read for one reconcile. Taint, drain, validation and operands other than the agent are added by the node reconciler.
type Observation struct {
	phase.Observed
	// GPUNode is a copy of the object: writes store the API server's answer in it. Spec and Status of Observed stay as they were read.
	GPUNode *v1alpha1.GPUNode
	// KubeNode is nil when there is no Node.
	KubeNode   *corev1.Node
	Assignment catalog.Assignment
	// Monitored is whether pods that monitor GPUs run on the node.
	Monitored bool
}

// Read reads a node and returns it with the pods of its operands, which belong to the cache. gpunode must be a copy.
func Read(ctx context.Context, cluster action.Cluster, c *catalog.Catalog, gpunode *v1alpha1.GPUNode) (*Observation, []corev1.Pod, error) {
	o := &Observation{GPUNode: gpunode, KubeNode: &corev1.Node{}}
	switch err := cluster.Client.Get(ctx, types.NamespacedName{Name: gpunode.Name}, o.KubeNode); {
	case apierrors.IsNotFound(err):
		o.KubeNode = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read node %s: %w", gpunode.Name, err)
	}
	o.Now, o.Spec, o.Status = time.Now(), gpunode.Spec, gpunode.Status
	if o.KubeNode != nil {
		o.Assignment = c.Assign(o.KubeNode).WithHardware(gpunode.Status.Hardware)
		o.Wanted = c.Wanted(o.Assignment, gpunode.Status.Hardware)
		o.Node = ObserveNode(o.KubeNode)
		o.Node.Plugin = devicePluginResources(o.KubeNode, o.Assignment.Sandbox)
	}
	pods, filter := &corev1.PodList{}, client.MatchingFields{informers.IndexPodNode: gpunode.Name}
	if err := cluster.Client.List(ctx, pods, client.InNamespace(cluster.Namespace), filter, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list pods on node %s: %w", gpunode.Name, err)
	}
	o.Agent = OperandPod(pods.Items, render.OperandNodeAgent)
	o.Monitored = slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return render.IsMonitoring(pod.Labels[render.LabelName]) })
	return o, pods.Items, nil
}

// ObserveNode returns a Node as input of the phase table, without the resources of device plugins.
func ObserveNode(node *corev1.Node) phase.Node {
	n := phase.Node{
		Exists: node.DeletionTimestamp == nil, Cordoned: node.Spec.Unschedulable, BootID: node.Status.NodeInfo.BootID,
		OldKubelet: phase.OldKubelet(node.Status.NodeInfo.KubeletVersion), Labels: action.ReadOperandLabels(node),
	}
	for _, c := range node.Status.Conditions {
		n.Ready = n.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return n
}

// devicePluginResources returns the extended resources of a node through which a device plugin offers GPUs, sorted and joined. Whole GPUs, shared GPUs
// and MIG devices have fixed names. Those for virtual machines are named after their product or as the administrator configured it, so on a sandbox node
// every resource of NVIDIA counts.
func devicePluginResources(node *corev1.Node, sandbox bool) string {
	var names []string
	for name, quantity := range node.Status.Allocatable {
		resource, ours := strings.CutPrefix(string(name), informers.ResourcePrefix)
		gpu := resource == "gpu" || strings.HasPrefix(resource, "gpu.") || strings.HasPrefix(resource, "mig-")
		if ours && (gpu || sandbox) && !quantity.IsZero() {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
