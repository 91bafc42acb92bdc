package informers

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// IndexPodNode indexes pods by the name of their node.
	IndexPodNode = "node"
	// IndexClaimPool indexes claims by the pools of their devices.
	IndexClaimPool = "pool"
)

// AddIndexes adds the indexes to the cache. It must be called before the cache starts.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return errors.Join(
		indexer.IndexField(ctx, &resourceapi.ResourceClaim{}, IndexClaimPool, ClaimPools),
		indexer.IndexField(ctx, &corev1.Pod{}, IndexPodNode, PodNodes),
	)
}

// PodNodes returns the node of a pod; none before it is scheduled.
func PodNodes(object client.Object) []string {
	if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}

// ClaimPools returns the pools that a claim has devices of, sorted.
func ClaimPools(object client.Object) []string {
	var pools []string
	for _, result := range results(object) {
		pools = append(pools, result.Pool)
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// ClaimNodes returns the nodes of a claim's devices, sorted. The node is found from the pool's name, which ends with the name of the DRA driver, whatever
// that is.
func ClaimNodes(object client.Object) []string {
	var nodes []string
	for _, result := range results(object) {
		if name, is := strings.CutSuffix(result.Pool, "-"+result.Driver); is {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// results returns the allocated devices of a claim.
func results(object client.Object) []resourceapi.DeviceRequestAllocationResult {
	claim, ok := object.(*resourceapi.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	return claim.Status.Allocation.Devices.Results
}
