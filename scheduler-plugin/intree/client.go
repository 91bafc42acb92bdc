package intree

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedresourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// uncancelableClient is a client whose writes of allocations are not canceled when a pod is preempted during binding:
// the API server could store a canceled write after PreBind has read the claim.
type uncancelableClient struct {
	kubernetes.Interface
}

// ResourceV1 returns the resource group.
func (c uncancelableClient) ResourceV1() typedresourcev1.ResourceV1Interface {
	return uncancelableGroup{c.Interface.ResourceV1()}
}

type uncancelableGroup struct {
	typedresourcev1.ResourceV1Interface
}

// ResourceClaims returns the claims of the namespace.
func (g uncancelableGroup) ResourceClaims(namespace string) typedresourcev1.ResourceClaimInterface {
	return uncancelableClaims{g.ResourceV1Interface.ResourceClaims(namespace)}
}

type uncancelableClaims struct {
	typedresourcev1.ResourceClaimInterface
}

// UpdateStatus completes even if ctx ends.
func (c uncancelableClaims) UpdateStatus(
	ctx context.Context, claim *resourceapi.ResourceClaim, options metav1.UpdateOptions,
) (*resourceapi.ResourceClaim, error) {
	return c.ResourceClaimInterface.UpdateStatus(context.WithoutCancel(ctx), claim, options)
}
