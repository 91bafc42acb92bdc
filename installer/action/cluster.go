// Package action performs what phase, remediation and rollout decide: each method of Cluster is one action on objects of the API server. An action
// may be performed twice: the second time changes nothing. After an error it may have been performed in part; performing it again completes it.
//
// Objects that an action takes as GPUNode or Node must be copies: writes store the API server's answer in them.
package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

const (
	// Manager is the field manager of all writes.
	Manager = "tessera-installer"
	// AnnotationBarrier names the boot, driver and agent that a validation is for, or the MIG mode that an operation is for. The result of a pod
	// with another barrier does not count.
	AnnotationBarrier = "tessera.dev/barrier"
	// LabelNode names the node that an object is for, shortened to the length of a label; NodeOf returns the whole name.
	LabelNode = "tessera.dev/node"
)

// Cluster is the API server that actions work on.
type Cluster struct {
	// Client reads from caches what the installer watches, and writes.
	Client client.Client
	// Live reads without a cache: pods of users are not cached.
	Live client.Client
	// Namespace is the installer's own.
	Namespace string
	// SliceTaints makes the agents publish the taint of GPUs under maintenance in their ResourceSlices: the API server serves no DeviceTaintRules.
	SliceTaints bool
}

// patchNodeSpec writes the difference between old and node, which differ in their specs only. It fails with a conflict when old is not the API server's
// version.
func (c Cluster) patchNodeSpec(ctx context.Context, old, node *v1alpha1.GPUNode) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, node, patch, client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("write spec of GPUNode %s: %w", node.Name, err)
	}
	return nil
}

// WriteNodeStatus writes the installer's part of a GPUNode's status: everything but hardware and agent, which belong to discovery and agent. It fails
// with a conflict when node is not the API server's version.
func (c Cluster) WriteNodeStatus(ctx context.Context, node *v1alpha1.GPUNode, status v1alpha1.GPUNodeStatus) error {
	status.Hardware, status.Agent = nil, nil
	return c.applyStatus(ctx, node, map[string]any{"name": node.Name, "resourceVersion": node.ResourceVersion}, status)
}

// WritePolicyStatus writes the whole status of a ClusterPolicy or NVIDIADriver, which has no other writer.
func (c Cluster) WritePolicyStatus(ctx context.Context, object client.Object, status any) error {
	return c.applyStatus(ctx, object, map[string]any{"name": object.GetName(), "uid": object.GetUID()}, status)
}

// applyStatus applies the status of an object of the group tessera.dev. metadata identifies the object, and the version of it that may be written.
func (c Cluster) applyStatus(ctx context.Context, object client.Object, metadata map[string]any, status any) error {
	kind, err := tesseraKind(object)
	if err != nil {
		return err
	}
	data, err := encodeStatus(kind, metadata, status)
	if err != nil {
		return fmt.Errorf("encode status of %s %s: %w", kind, object.GetName(), err)
	}
	err = c.Client.Status().Patch(ctx, object, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(Manager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status of %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}

func encodeStatus(kind string, metadata map[string]any, status any) ([]byte, error) {
	data, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	removeNulls(fields)
	return json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": kind, "metadata": metadata, "status": fields})
}

// tesseraKind returns the kind of an object of the group tessera.dev; objects from a cache do not carry it.
func tesseraKind(object client.Object) (string, error) {
	switch object.(type) {
	case *v1alpha1.GPUNode:
		return "GPUNode", nil
	case *v1alpha1.ClusterPolicy:
		return "ClusterPolicy", nil
	case *v1alpha1.NVIDIADriver:
		return "NVIDIADriver", nil
	}
	return "", fmt.Errorf("write status of %s: %T is no kind of %s", object.GetName(), object, v1alpha1.APIVersion)
}

// removeNulls removes fields that are null, such as a time that is not set: the API server would reject them.
func removeNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
				continue
			}
			removeNulls(field)
		}
	case []any:
		for _, element := range v {
			removeNulls(element)
		}
	}
}

// nodeLabelValue returns a node's name as the value of a label. The end of a name that is too long for one is replaced by a hash of the whole name.
func nodeLabelValue(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:8])
	return name[:maxLabelValue-len(hash)-1] + "-" + hash
}

// NodeOf returns the name of the node that an object of the installer is for; empty: it is for no single node.
func NodeOf(object client.Object) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "GPUNode" && object.GetLabels()[LabelNode] != "" {
			return owner.Name
		}
	}
	return ""
}

// ownedBy returns the metadata of an object that Kubernetes deletes together with a GPUNode.
func (c Cluster) ownedBy(node *v1alpha1.GPUNode, name, operand string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: c.Namespace, Name: name,
		Labels: map[string]string{render.LabelManagedBy: render.ManagedBy, render.LabelName: operand, LabelNode: nodeLabelValue(node.Name)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.APIVersion, Kind: "GPUNode", Name: node.Name, UID: node.UID,
		}},
	}
}

// deleteObject deletes an object; one that does not exist is no error.
func (c Cluster) deleteObject(ctx context.Context, object client.Object) error {
	if err := c.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")
		return fmt.Errorf("delete %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}
