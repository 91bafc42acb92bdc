package intree

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedresourcev1 "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// uncancelableClient is a client that does not break off the write of an allocation: when a pod is preempted while it is bound, the API server may
// take the write after it has answered learn.
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

// UpdateStatus waits for the answer even when ctx ends.
func (c uncancelableClaims) UpdateStatus(ctx context.Context, claim *resourceapi.ResourceClaim, options metav1.UpdateOptions) (*resourceapi.ResourceClaim, error) {
	return c.ResourceClaimInterface.UpdateStatus(context.WithoutCancel(ctx), claim, options)
}
