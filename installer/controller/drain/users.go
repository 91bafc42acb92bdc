package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Users are the claims and pods that use devices of a node, as the cache has them.
type Users struct {
	// Pods are the pods for which the claims are reserved, each once, sorted. UIDs are those that the reservations have for each name, and Claimed is
	// when the oldest of the claims was created.
	Pods    []types.NamespacedName
	UIDs    map[types.NamespacedName][]types.UID
	Claimed map[types.NamespacedName]time.Time
	// Claims is the number of claims that hold devices, Devices are these devices, not sorted. Claims that only monitor devices hold none.
	Claims  int
	Devices []string
	// Unreadable is whether a claim is reserved for an object that is not a pod.
	Unreadable bool
}

// PoolUsers returns the users of a pool's devices, pods that only monitor them included: they have the driver open. The installer's own validations and
// operands are no users.
func PoolUsers(ctx context.Context, cluster action.Cluster, pool string) (Users, error) {
	return findUsers(ctx, cluster, pool, func(resourceapi.DeviceRequestAllocationResult) bool { return true })
}

// DeviceUsers returns the users of those devices of a pool that counts reports, without pods that monitor them. All devices of such a claim are in Devices.
func DeviceUsers(ctx context.Context, cluster action.Cluster, pool string, counts func(device string) bool) (Users, error) {
	return findUsers(ctx, cluster, pool, func(result resourceapi.DeviceRequestAllocationResult) bool {
		return !monitors(result) && counts(result.Device)
	})
}

func findUsers(ctx context.Context, cluster action.Cluster, pool string, counts func(resourceapi.DeviceRequestAllocationResult) bool) (Users, error) {
	list := &resourceapi.ResourceClaimList{}
	if err := cluster.Client.List(ctx, list, client.MatchingFields{informers.IndexClaimPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return Users{}, fmt.Errorf("list claims of pool %s: %w", pool, err)
	}
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}, Claimed: map[types.NamespacedName]time.Time{}}
	for i := range list.Items {
		claim := &list.Items[i]
		results := slices.DeleteFunc(slices.Clone(claim.Status.Allocation.Devices.Results), func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Pool != pool })
		if isOwn(claim, cluster.Namespace, results) || !slices.ContainsFunc(results, counts) {
			continue
		}
		held := slices.DeleteFunc(results, monitors)
		if len(held) > 0 {
			u.Claims++
		}
		for _, result := range held {
			u.Devices = append(u.Devices, result.Device)
		}
		for _, consumer := range claim.Status.ReservedFor {
			if consumer.APIGroup != "" || consumer.Resource != "pods" {
				u.Unreadable = true
				continue
			}
			pod := types.NamespacedName{Namespace: claim.Namespace, Name: consumer.Name}
			u.Pods, u.UIDs[pod] = append(u.Pods, pod), append(u.UIDs[pod], consumer.UID)
			if oldest, found := u.Claimed[pod]; !found || claim.CreationTimestamp.Time.Before(oldest) {
				u.Claimed[pod] = claim.CreationTimestamp.Time
			}
		}
	}
	slices.SortFunc(u.Pods, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	u.Pods = slices.Compact(u.Pods)
	return u, nil
}

// isOwn reports whether the claim is of the installer: of a validation, or of an operand, which only monitors GPUs and leaves the node by its label.
func isOwn(claim *resourceapi.ResourceClaim, namespace string, results []resourceapi.DeviceRequestAllocationResult) bool {
	return claim.Namespace == namespace &&
		(claim.Labels[render.LabelName] == render.OperandValidation || !slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return !monitors(r) }))
}

// monitors reports whether the device is only monitored.
func monitors(result resourceapi.DeviceRequestAllocationResult) bool {
	return result.AdminAccess != nil && *result.AdminAccess
}

// Holders returns the pods as holders, without reading them: enough while nothing is drained.
func (u Users) Holders() phase.Drain {
	drain := phase.Drain{Unreadable: u.Unreadable}
	for _, pod := range u.Pods {
		drain.Holders = append(drain.Holders, pod.String())
	}
	return drain
}
