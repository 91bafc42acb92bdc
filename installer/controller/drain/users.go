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
	// Claims is the number of claims, Devices are their devices, not sorted.
	Claims  int
	Devices []string
	// Unreadable is whether a claim is reserved for an object that is not a pod.
	Unreadable bool
}

// PoolUsers returns the users of a pool's devices. The installer's own validations are no users.
func PoolUsers(ctx context.Context, cluster action.Cluster, pool string) (Users, error) {
	return DeviceUsers(ctx, cluster, pool, func(string) bool { return true })
}

// DeviceUsers returns the users of those devices of a pool that counts reports. All devices of such a claim are in Devices.
func DeviceUsers(ctx context.Context, cluster action.Cluster, pool string, counts func(device string) bool) (Users, error) {
	list := &resourceapi.ResourceClaimList{}
	if err := cluster.Client.List(ctx, list, client.MatchingFields{informers.IndexClaimPool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return Users{}, fmt.Errorf("list claims of pool %s: %w", pool, err)
	}
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}, Claimed: map[types.NamespacedName]time.Time{}}
	for i := range list.Items {
		claim := &list.Items[i]
		own, devices := claim.Namespace == cluster.Namespace && claim.Labels[render.LabelName] == render.OperandValidation, claimDevices(claim, pool)
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
			if oldest, found := u.Claimed[pod]; !found || claim.CreationTimestamp.Time.Before(oldest) {
				u.Claimed[pod] = claim.CreationTimestamp.Time
			}
		}
	}
	slices.SortFunc(u.Pods, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	u.Pods = slices.Compact(u.Pods)
	return u, nil
}

// claimDevices returns the devices of a pool that are allocated to a claim, without those with admin access.
func claimDevices(claim *resourceapi.ResourceClaim, pool string) []string {
	var devices []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Pool == pool && (result.AdminAccess == nil || !*result.AdminAccess) {
			devices = append(devices, result.Device)
		}
	}
	return devices
}

// Holders returns the pods as holders, without reading them: enough while nothing is drained.
func (u Users) Holders() phase.Drain {
	drain := phase.Drain{Unreadable: u.Unreadable}
	for _, pod := range u.Pods {
		drain.Holders = append(drain.Holders, pod.String())
	}
	return drain
}
