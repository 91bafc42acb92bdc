package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// IndexClaimPool finds claims by the pools of their devices.
const IndexClaimPool = "pool"

// ClaimPools are the pools that a claim has devices of, but for those that it only watches.
func ClaimPools(object client.Object) []string {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	var pools []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.AdminAccess == nil || !*result.AdminAccess {
			pools = append(pools, result.Pool)
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// Users is who uses the GPUs of a node.
type Users struct {
	// Pods are those for which claims are reserved, each once, in order; uids whom a claim means by each name.
	Pods []types.NamespacedName
	UIDs map[types.NamespacedName][]types.UID
	// Claims is how many claims have devices of the node, devices are those, in no order.
	Claims  int
	Devices []string
	// Unreadable is whether a claim is reserved for something that is no pod.
	Unreadable bool
}

// PoolUsers finds them in the cache. The installer's own validations do not count; what users call their claims does not matter.
func PoolUsers(ctx context.Context, c action.Cluster, pool string) (Users, error) {
	return DeviceUsers(ctx, c, pool, func(string) bool { return true })
}

// DeviceUsers finds those of some of the pool's devices.
func DeviceUsers(ctx context.Context, c action.Cluster, pool string, counts func(device string) bool) (Users, error) {
	list := &resourceapi.ResourceClaimList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{IndexClaimPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return Users{}, fmt.Errorf("list claims of pool %s: %w", pool, err)
	}
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}}
	for i := range list.Items {
		claim := &list.Items[i]
		own, devices := claim.Namespace == c.Namespace && claim.Labels[render.LabelName] == render.OperandValidation, claimDevices(claim, pool)
		if own || !slices.ContainsFunc(devices, counts) {
			continue
		}
		u.Claims++
		u.Devices = append(u.Devices, devices...)
		for _, consumer := range claim.Status.ReservedFor {
			if consumer.APIGroup != "" || consumer.Resource != "pods" {
				u.Unreadable = true
				continue
			}
			pod := types.NamespacedName{Namespace: claim.Namespace, Name: consumer.Name}
			u.Pods, u.UIDs[pod] = append(u.Pods, pod), append(u.UIDs[pod], consumer.UID)
		}
	}
	slices.SortFunc(u.Pods, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	u.Pods = slices.Compact(u.Pods)
	return u, nil
}

// claimDevices are the devices of a pool that a claim has, but for those that it only watches.
func claimDevices(claim *resourceapi.ResourceClaim, pool string) []string {
	var devices []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Pool == pool && (result.AdminAccess == nil || !*result.AdminAccess) {
			devices = append(devices, result.Device)
		}
	}
	return devices
}

// drainer looks at the pods of users, live, and remembers which evictions were refused: whoever starts anew asks anew.
type drainer struct {
	live    client.Reader
	refused *refusedEvictions
}

// look says who holds the GPUs of a node that is being drained, and whom an eviction would be asked for.
func (d drainer) look(ctx context.Context, u Users, spec v1alpha1.DrainSpec) (phase.Drain, []action.PodRef) {
	drain := phase.Drain{Unreadable: u.Unreadable}
	var victims []action.PodRef
	waited, err := metav1.LabelSelectorAsSelector(spec.WaitFor)
	if err != nil {
		waited = labels.Nothing()
	}
	for _, key := range u.Pods {
		pod, err := action.ReadConsumer(ctx, d.live, key, u.UIDs[key]...)
		if err != nil {
			drain.Unreadable = true
			drain.Holders = append(drain.Holders, key.String())
			continue
		}
		if pod == nil {
			continue
		}
		drain.Holders = append(drain.Holders, key.String())
		if pod.DeletionTimestamp != nil {
			drain.Leaving = append(drain.Leaving, key.String())
			continue
		}
		if waited.Matches(labels.Set(pod.Labels)) {
			drain.Waited = append(drain.Waited, key.String())
		}
		if reason := evictionBlocker(pod, spec); reason != "" {
			drain.Staying = append(drain.Staying, phase.BlockedPod{Name: key.String(), Reason: reason})
			drain.Blocked = append(drain.Blocked, phase.BlockedPod{Name: key.String(), Reason: reason})
			continue
		}
		if reason := d.refused.reason(pod.UID); reason != "" {
			drain.Blocked = append(drain.Blocked, phase.BlockedPod{Name: key.String(), Reason: reason})
		}
		victims = append(victims, action.PodRef{Namespace: key.Namespace, Name: key.Name, UID: pod.UID})
	}
	return drain, victims
}

// evictionBlocker returns why a pod is not evicted; empty: it may be.
func evictionBlocker(pod *corev1.Pod, spec v1alpha1.DrainSpec) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case pod.Labels[v1alpha1.LabelSkipDrain] == "true":
		return "its label " + v1alpha1.LabelSkipDrain + " leaves it to itself: end it, or remove the label"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is a static pod of the node: remove its file"
	case owner != nil && owner.Kind == "DaemonSet":
		return "DaemonSet " + owner.Name + " would make it again at once: take the node out of its selector, or delete it"
	case owner == nil && !spec.Force:
		return "no controller would make it again: delete it, or set drain.force"
	case spec.DeleteEmptyDir != nil && !*spec.DeleteEmptyDir && hasEmptyDir(pod):
		return "it would lose the data of an emptyDir: delete it, or set drain.deleteEmptyDir"
	}
	return ""
}

func hasEmptyDir(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}
