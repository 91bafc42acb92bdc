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

// Grant is the part of a GPUNode's spec that the rollout grants to the node. A nil driver, an empty pool and an empty MIG mode are written as such.
type Grant struct {
	Driver    *v1alpha1.DesiredDriver
	AgentPool string
	MIGMode   v1alpha1.MIGMode
	// DriverRestart is the driver's pod for which the node may be drained.
	DriverRestart string
}

// GrantOf returns what a GPUNode has been granted.
func GrantOf(node *v1alpha1.GPUNode) Grant {
	return Grant{Driver: node.Spec.Driver, AgentPool: node.Spec.AgentPool, MIGMode: node.Spec.MIGMode, DriverRestart: node.Spec.DriverRestart}
}

// WriteGrant sets the granted part of a GPUNode's spec.
func (c Cluster) WriteGrant(ctx context.Context, node *v1alpha1.GPUNode, grant Grant) error {
	old := node.DeepCopy()
	node.Spec.Driver, node.Spec.AgentPool, node.Spec.MIGMode = grant.Driver.DeepCopy(), grant.AgentPool, grant.MIGMode
	node.Spec.DriverRestart = grant.DriverRestart
	if equality.Semantic.DeepEqual(old.Spec, node.Spec) {
		return nil
	}
	return c.patchNodeSpec(ctx, old, node)
}

// GrantDriver sets the driver that a GPUNode is granted and leaves pool and MIG mode as they are.
func (c Cluster) GrantDriver(ctx context.Context, node *v1alpha1.GPUNode, driver *v1alpha1.DesiredDriver) error {
	grant := GrantOf(node)
	grant.Driver = driver
	return c.WriteGrant(ctx, node, grant)
}

// CreateGPUNode creates the GPUNode of a Node, owned by it. A GPUNode that exists is left as it is.
func (c Cluster) CreateGPUNode(ctx context.Context, node *corev1.Node) error {
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
		}},
	}}
	if err := c.Client.Create(ctx, object, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create GPUNode %s: %w", node.Name, err)
	}
	return nil
}
