package action

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Grant writes what a node is to have. Fields that are nil or empty are written as such.
type Grant struct {
	Node      *v1alpha1.GPUNode
	Driver    *v1alpha1.DesiredDriver
	AgentPool string
	MIGMode   v1alpha1.MIGMode
}

// Do performs it.
func (a Grant) Do(ctx context.Context, c Cluster) error {
	old := a.Node.DeepCopy()
	a.Node.Spec.Driver, a.Node.Spec.AgentPool, a.Node.Spec.MIGMode = a.Driver.DeepCopy(), a.AgentPool, a.MIGMode
	if equality.Semantic.DeepEqual(old.Spec, a.Node.Spec) {
		return nil
	}
	return c.patchSpec(ctx, old, a.Node)
}

// Adopt makes the GPUNode of a Node. It ends with the Node.
type Adopt struct{ Node *corev1.Node }

// Do performs it. A GPUNode that exists is left as it is.
func (a Adopt) Do(ctx context.Context, c Cluster) error {
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{
		Name: a.Node.Name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: a.Node.Name, UID: a.Node.UID,
		}},
	}}
	if err := c.Client.Create(ctx, object, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make GPUNode %s: %w", a.Node.Name, err)
	}
	return nil
}
