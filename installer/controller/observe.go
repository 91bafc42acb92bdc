package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// IndexPodNode finds pods of the own namespace by their node.
const IndexPodNode = "node"

func PodNodes(object client.Object) []string {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}

// nodeObservation is one node as it is, and what actions need of it beside.
type nodeObservation struct {
	phase.Observed
	GPUNode *v1alpha1.GPUNode
	// KubeNode is nil when there is none.
	KubeNode       *corev1.Node
	Assignment Assignment
	victims    []action.PodRef
	// claims is how many claims have devices of the node.
	claims int
	// Monitored is whether pods of monitoring are on the node.
	Monitored bool
	// patients are its GPUs that are not well, in order of their names.
	patients []gpuRemediation
}

// observe looks at a node.
func (r *nodeReconciler) observe(ctx context.Context, cat *Catalog, gpunode *v1alpha1.GPUNode) (*nodeObservation, error) {
	s, pods, err := r.begin(ctx, cat, gpunode)
	if err != nil {
		return nil, err
	}
	s.Driver = OperandPod(pods, DriverOperand(s.Assignment))
	s.Toolkit, s.Operation = OperandPod(pods, render.OperandToolkit), OperandPod(pods, render.OperandOperation)
	s.Monitored = slices.ContainsFunc(pods, isMonitoringPod)
	return s, s.complete(ctx, r)
}

// begin looks at the objects of a node and its agent, and returns the pods of operands on it.
func (r *nodeReconciler) begin(ctx context.Context, cat *Catalog, gpunode *v1alpha1.GPUNode) (*nodeObservation, []corev1.Pod, error) {
	s := &nodeObservation{GPUNode: gpunode, KubeNode: &corev1.Node{}}
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: gpunode.Name}, s.KubeNode); {
	case apierrors.IsNotFound(err):
		s.KubeNode = nil
	case err != nil:
		return nil, nil, fmt.Errorf("read node %s: %w", gpunode.Name, err)
	}
	s.Now, s.Spec, s.Status = time.Now(), gpunode.Spec, gpunode.Status
	if s.KubeNode != nil {
		s.Assignment = cat.Assign(s.KubeNode).WithHardware(gpunode.Status.Hardware)
		s.Wanted = cat.Wanted(s.Assignment, gpunode.Status.Hardware)
		s.Node = ObserveNode(s.KubeNode)
		s.Node.Plugin = devicePluginResources(s.KubeNode, s.Assignment)
	}
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(r.Namespace), client.MatchingFields{IndexPodNode: gpunode.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list pods on node %s: %w", gpunode.Name, err)
	}
	s.Agent = OperandPod(pods.Items, render.OperandNodeAgent)
	return s, pods.Items, nil
}

// DriverOperand is what the driver's pods on a node are called.
func DriverOperand(a Assignment) string {
	if a.VGPU {
		return render.OperandVGPUManager
	}
	return render.OperandDriver
}

// complete looks at taint, claims and validation.
func (s *nodeObservation) complete(ctx context.Context, r *nodeReconciler) error {
	name := s.GPUNode.Name
	var err error
	if s.Placed, err = r.placedDriver(ctx, s); err != nil {
		return err
	}
	rule := &resourceapi.DeviceTaintRule{}
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: action.TaintRuleName(name)}, rule); {
	case err == nil:
		s.Tainted = rule.DeletionTimestamp == nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read taint of node %s: %w", name, err)
	}
	users, err := PoolUsers(ctx, r.Cluster, name+"-"+s.Assignment.DRADriver)
	if err != nil {
		return err
	}
	s.claims = users.Claims
	if s.Spec.Maintenance != nil || s.Tainted {
		s.Drain, s.victims = r.drainer.look(ctx, users, s.Assignment.Upgrade.Drain)
	} else {
		s.Drain.Unreadable = users.Unreadable
		for _, pod := range users.Pods {
			s.Drain.Holders = append(s.Drain.Holders, pod.String())
		}
	}
	s.Validation, err = s.validation(ctx, r)
	return err
}

// barrier tells for which boot, driver and agent a validation holds, and whom it leaves out.
func (s *nodeObservation) barrier() string {
	digest := ""
	if s.Spec.Driver != nil {
		digest = s.Spec.Driver.Digest
	}
	barrier := strings.Join([]string{s.Node.BootID, digest, s.Agent.UID}, "/")
	if out := s.excludedGPUs(); len(out) > 0 {
		barrier += "/without/" + strings.Join(out, "/")
	}
	return barrier
}

// validation says how far the node's proof is. What waits for its pod is gone on with if it is the part that every proof has: a slice may not be to prove any
// more, and is left over.
func (s *nodeObservation) validation(ctx context.Context, r *nodeReconciler) (phase.Validation, error) {
	v := phase.Validation{State: phase.ValidationNone}
	var parts []phase.Pod
	for _, part := range action.NodeValidationParts() {
		switch p, err := r.readProof(ctx, s.GPUNode.Name, part); {
		case err != nil:
			return v, err
		case part == action.PartGPUs && p.AwaitsPod(s.barrier()):
			v.Begun, parts = true, append(parts, p.PendingPod())
		case p.Pod != nil && s.partCounts(part, p):
			parts = append(parts, ObservePod(p.Pod))
		default:
			v.Leftover = v.Leftover || p.Pod != nil || p.Claim != nil
		}
	}
	return CombineParts(v, parts), nil
}

// partCounts reports whether the pod of a part says something of this validation. A slice that users leave no room for proves nothing, and is no fault: whole
// GPUs are enough then.
func (s *nodeObservation) partCounts(part action.ValidationPart, p ValidationObjects) bool {
	seen := ObservePod(p.Pod)
	outrun := part == action.PartMIG && seen.State == phase.PodPending && !p.Allocated() && s.claims > 0
	return !outrun && seen.State != phase.PodTerminating && seen.Barrier == s.barrier()
}

// ValidationObjects is what stands of a part of a validation; nil is what is not there.
type ValidationObjects struct {
	Pod   *corev1.Pod
	Claim *resourceapi.ResourceClaim
}

func (p ValidationObjects) Allocated() bool { return p.Claim != nil && p.Claim.Status.Allocation != nil }

// AwaitsPod reports whether the claim of an attempt stands as it was made, and its pod is still to be made.
func (p ValidationObjects) AwaitsPod(barrier string) bool {
	return p.Pod == nil && p.Claim != nil && !p.Allocated() && p.Claim.DeletionTimestamp == nil && p.Claim.Annotations[action.AnnotationBarrier] == barrier
}

// PendingPod is the pod of a claim that has none yet: the attempt has its time from the claim on.
func (p ValidationObjects) PendingPod() phase.Pod {
	return phase.Pod{State: phase.PodPending, Since: p.Claim.CreationTimestamp.Time}
}

// readProof reads a part of a validation.
func (r *nodeReconciler) readProof(ctx context.Context, node string, part action.ValidationPart) (ValidationObjects, error) {
	key := types.NamespacedName{Namespace: r.Namespace, Name: action.ValidationName(node, part)}
	p := ValidationObjects{Pod: &corev1.Pod{}, Claim: &resourceapi.ResourceClaim{}}
	errPod, errClaim := r.Client.Get(ctx, key, p.Pod), r.Client.Get(ctx, key, p.Claim)
	if err := firstError(errPod, errClaim); err != nil {
		return p, fmt.Errorf("read validation of node %s: %w", node, err)
	}
	if errPod != nil {
		p.Pod = nil
	}
	if errClaim != nil {
		p.Claim = nil
	}
	return p, nil
}

// CombineParts says what the parts of a validation amount to.
func CombineParts(v phase.Validation, parts []phase.Pod) phase.Validation {
	if len(parts) == 0 {
		return v
	}
	v.State = phase.ValidationPassed
	for _, part := range parts {
		if v.Since.IsZero() || part.Since.Before(v.Since) {
			v.Since = part.Since
		}
		switch {
		case part.State == phase.PodFailed:
			v.State, v.Reason, v.Message, v.Leftover = phase.ValidationFailed, part.Reason, part.Message, true
			return v
		case part.State != phase.PodSucceeded:
			v.State = phase.ValidationRunning
			if v.Reason == "" {
				v.Reason, v.Message = part.Reason, part.Message
			}
		}
	}
	v.Leftover = v.Leftover || v.State == phase.ValidationPassed
	return v
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// ObserveNode reads what a Node says, but for resources of device plugins.
func ObserveNode(node *corev1.Node) phase.Node {
	n := phase.Node{
		Exists: node.DeletionTimestamp == nil, Cordoned: node.Spec.Unschedulable, BootID: node.Status.NodeInfo.BootID,
		Labels: action.ReadOperandLabels(node),
	}
	for _, c := range node.Status.Conditions {
		n.Ready = n.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return n
}

// ResourcePrefix begins the resources that device plugins of NVIDIA offer: of GPUs, and of what else a node has, such as network cards.
const ResourcePrefix = "nvidia.com/"

// devicePluginResources names the resources of a node that a device plugin hands GPUs out by. Whole GPUs, shared ones and slices have fixed names; those of virtual
// machines are called as their product, or as somebody chose, so that on nodes for them every one counts.
func devicePluginResources(node *corev1.Node, a Assignment) string {
	var names []string
	for name, quantity := range node.Status.Allocatable {
		resource, ours := strings.CutPrefix(string(name), ResourcePrefix)
		gpu := resource == "gpu" || strings.HasPrefix(resource, "gpu.") || strings.HasPrefix(resource, "mig-")
		if ours && (gpu || a.Sandbox) && !quantity.IsZero() {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
