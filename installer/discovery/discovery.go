package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Manager is the field manager that owns status.hardware.
const Manager = "tessera-discovery"

// Nodes reads Nodes.
type Nodes interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

// GPUNodes reads and writes GPUNodes.
type GPUNodes interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.GPUNode, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, node *v1alpha1.GPUNode, options metav1.CreateOptions) (*v1alpha1.GPUNode, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (*v1alpha1.GPUNode, error)
}

// period is the interval between surveys of the host, again that between reads of an unchanged GPUNode: the GPUNode is read at the start, after a change
// on the host, and otherwise rarely, so that thousands of nodes are a small load for the API server. Between surveys the GPUNode is watched.
const (
	period    = 5 * time.Minute
	again     = 6 * time.Hour
	firstWait = 5 * time.Second
)

// Discovery maintains the GPUNode of one node.
type Discovery struct {
	node     string
	host     Host
	nodes    Nodes
	gpuNodes GPUNodes

	// published is the last known status.hardware, nil if unknown; readAt is when it was read or written.
	published *v1alpha1.HardwareStatus
	readAt    time.Time
	// version is the resourceVersion of the GPUNode from which the watch starts, empty if there is no GPUNode.
	version string
	// runtime is status.nodeInfo.containerRuntimeVersion of the Node.
	runtime string
}

// New returns the discovery of a node.
func New(node string, host Host, nodes Nodes, gpuNodes GPUNodes) *Discovery {
	return &Discovery{node: node, host: host, nodes: nodes, gpuNodes: gpuNodes}
}

// Run surveys the host and updates the GPUNode until ctx ends. An error is logged and retried with a backoff up to the period. If the GPUNode is
// deleted or loses its hardware status, it is written again within seconds.
func (d *Discovery) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	wait := firstWait
	for ctx.Err() == nil {
		err := d.Once(ctx)
		next := period
		if err != nil && ctx.Err() == nil {
			log.Error(err, "Cannot report the node's hardware", "node", d.node, "retryAfter", wait)
			next, wait = wait, min(2*wait, period)
		} else {
			wait = firstWait
		}
		d.rest(ctx, next+rand.N(next/10)) //nolint:gosec // spreads the nodes of a fleet, hides nothing
	}
	return nil
}

// rest waits until the next survey. It returns early if the GPUNode has lost the published hardware.
func (d *Discovery) rest(ctx context.Context, span time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, period) {
		lost := d.published != nil && d.version != "" && d.watch(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait + rand.N(wait)): //nolint:gosec // spreads the nodes of a fleet, hides nothing
		}
		if lost {
			d.published = nil
			return
		}
	}
}

// Once surveys the host and writes changes. Without a change, no request is sent unless the last read is older than again.
func (d *Discovery) Once(ctx context.Context) error {
	seen, err := d.host.Look(d.runtime)
	if err != nil {
		return fmt.Errorf("survey the host: %w", err)
	}
	if d.published != nil && reflect.DeepEqual(*d.published, seen) && time.Since(d.readAt) < again {
		return nil
	}
	return d.publish(ctx, seen.GPUs > 0)
}

// publish writes the hardware to the GPUNode and creates it if needed. A node that never had a GPU gets none.
func (d *Discovery) publish(ctx context.Context, found bool) error {
	current, err := d.gpuNodes.Get(ctx, d.node, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read GPUNode %s: %w", d.node, err)
	}
	if missing && !found {
		seen, err := d.host.Look(d.runtime)
		d.version = ""
		d.record(seen)
		return err
	}
	node, err := d.nodes.Get(ctx, d.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Node %s: %w", d.node, err)
	}
	d.runtime = node.Status.NodeInfo.ContainerRuntimeVersion
	if missing {
		current = &v1alpha1.GPUNode{}
		if err := d.create(ctx, node); err != nil {
			return err
		}
	}
	d.version = current.ResourceVersion
	return d.update(ctx, current.Status.Hardware)
}

// update writes the hardware if it differs from the reported one.
func (d *Discovery) update(ctx context.Context, reported *v1alpha1.HardwareStatus) error {
	seen, err := d.host.Look(d.runtime)
	if err != nil {
		return fmt.Errorf("survey the host: %w", err)
	}
	if reported == nil || !reflect.DeepEqual(*reported, seen) {
		if err := d.apply(ctx, seen); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Reported the node's hardware", "node", d.node, "hardware", describe(seen))
	}
	d.record(seen)
	return nil
}

func (d *Discovery) record(seen v1alpha1.HardwareStatus) { d.published, d.readAt = &seen, time.Now() }

// create creates the GPUNode with its Node as the owner. If the installer has created it meanwhile, that one is used.
func (d *Discovery) create(ctx context.Context, node *corev1.Node) error {
	_, err := d.gpuNodes.Create(ctx, &v1alpha1.GPUNode{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		ObjectMeta: metav1.ObjectMeta{
			Name: d.node, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
	}, metav1.CreateOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create GPUNode %s: %w", d.node, err)
	}
	return nil
}

// apply writes only status.hardware.
func (d *Discovery) apply(ctx context.Context, seen v1alpha1.HardwareStatus) error {
	patch := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "GPUNode",
		"metadata": map[string]any{"name": d.node}, "status": map[string]any{"hardware": seen},
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("write GPUNode %s: %w", d.node, err)
	}
	force := true
	written, err := d.gpuNodes.Patch(ctx, d.node, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: Manager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("write GPUNode %s: %w", d.node, err)
	}
	d.version = written.ResourceVersion
	return nil
}
