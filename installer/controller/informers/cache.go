// Package informers configures the cache of the installer: which objects it has, which of their fields it keeps, and its indexes.
package informers

import (
	"crypto/sha256"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// ResourcePrefix begins the names of extended resources of NVIDIA's device plugins: of GPUs, and of other devices such as network cards.
const ResourcePrefix = "nvidia.com/"

// CacheOptions returns the options of the cache: namespaced objects of the installer's namespace, objects of some kinds only with the installer's label,
// and Pods, Nodes, Secrets and ResourceClaims without the fields that are not needed. taintRules is whether the API server serves DeviceTaintRules.
func CacheOptions(namespace string, taintRules bool) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	made := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{render.LabelManagedBy: render.ManagedBy})}
	madeHere := cache.ByObject{Label: made.Label, Namespaces: own}
	here := cache.ByObject{Namespaces: own}
	o := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                        {Namespaces: own, Transform: TrimPod},
			&corev1.ConfigMap{}:                  here,
			&corev1.Secret{}:                     {Namespaces: own, Transform: HashSecretValues},
			&appsv1.DaemonSet{}:                  madeHere,
			&appsv1.Deployment{}:                 madeHere,
			&corev1.Service{}:                    madeHere,
			&resourceapi.ResourceClaimTemplate{}: madeHere,
			&policyv1.PodDisruptionBudget{}:      madeHere,
			&nodev1.RuntimeClass{}:               made,
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{}: made,
			&corev1.Node{}:               {Transform: TrimNode},
			&resourceapi.ResourceClaim{}: {Transform: TrimClaim(namespace)},
		},
	}
	if taintRules { // an entry for a kind that is not served is an error
		o.ByObject[&resourceapi.DeviceTaintRule{}] = made
	}
	return o
}

// HashSecretValues replaces the values of a Secret by their hashes, which suffice to detect a change. It is a transform of the cache.
func HashSecretValues(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	for key, value := range secret.Data {
		sum := sha256.Sum256(value)
		secret.Data[key] = sum[:]
	}
	secret.ManagedFields, secret.Annotations = nil, nil
	return secret, nil
}

// TrimPod keeps the operand, node, state and problems of a pod: what nodestate.ObservePod, ObserveValidationPod and action.NodeOf read. There are several
// pods for each node of the cluster, and a whole one has ten times the size. It is a transform of the cache.
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels:      keepKeys(pod.Labels, render.LabelName, action.LabelNode),
			Annotations: keepKeys(pod.Annotations, render.AnnotationDigest, action.AnnotationBarrier),
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, RestartPolicy: pod.Spec.RestartPolicy},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message},
	}
	if slim.Labels[action.LabelNode] != "" {
		slim.OwnerReferences = pod.OwnerReferences
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			slim.Status.Conditions = append(slim.Status.Conditions, corev1.PodCondition{
				Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	slim.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
	slim.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	return slim, nil
}

// keepKeys returns the entries with these keys; nil if there are none.
func keepKeys(from map[string]string, keys ...string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, ok := from[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// trimStatuses returns what explains why containers are not ready.
func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range statuses {
		kept = append(kept, corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, Ready: s.Ready, State: s.State, LastTerminationState: s.LastTerminationState, RestartCount: s.RestartCount,
		})
	}
	return kept
}

// TrimNode keeps labels, taints, boot ID, kubelet's version, the status of condition Ready, resources of NVIDIA's device plugins, the names of runtime
// handlers, and the managed fields of the installer.
// Heartbeats are dropped, so that they are no change. It is a transform of the cache.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	info := node.Status.NodeInfo
	status := corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: info.BootID, KubeletVersion: info.KubeletVersion}}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	for name, quantity := range node.Status.Allocatable {
		if strings.HasPrefix(string(name), ResourcePrefix) && !quantity.IsZero() {
			if status.Allocatable == nil {
				status.Allocatable = corev1.ResourceList{}
			}
			status.Allocatable[name] = quantity
		}
	}
	for _, handler := range node.Status.RuntimeHandlers {
		status.RuntimeHandlers = append(status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: handler.Name})
	}
	var fields []metav1.ManagedFieldsEntry
	for _, entry := range node.ManagedFields {
		if entry.Manager == action.Manager && entry.Subresource == "" {
			fields = append(fields, entry)
		}
	}
	node.Annotations, node.ManagedFields, node.Status = nil, fields, status
	return node, nil
}

// TrimClaim returns a transform of the cache that keeps a claim's devices and reservations, and the metadata of the installer's validations.
func TrimClaim(namespace string) toolscache.TransformFunc {
	return func(object any) (any, error) {
		claim, ok := object.(*resourceapi.ResourceClaim)
		if !ok {
			return object, nil
		}
		slim := &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
				DeletionTimestamp: claim.DeletionTimestamp,
			},
			Status: resourceapi.ResourceClaimStatus{ReservedFor: claim.Status.ReservedFor},
		}
		if claim.Namespace == namespace && claim.Labels[render.LabelName] == render.OperandValidation {
			slim.Labels, slim.Annotations, slim.OwnerReferences = claim.Labels, claim.Annotations, claim.OwnerReferences
			slim.CreationTimestamp = claim.CreationTimestamp
		}
		if allocation := claim.Status.Allocation; allocation != nil {
			slim.Status.Allocation = &resourceapi.AllocationResult{}
			for _, r := range allocation.Devices.Results {
				slim.Status.Allocation.Devices.Results = append(slim.Status.Allocation.Devices.Results,
					resourceapi.DeviceRequestAllocationResult{Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess})
			}
		}
		return slim, nil
	}
}
