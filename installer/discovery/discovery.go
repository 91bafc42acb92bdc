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

// How often is looked. The host is looked at from its own files; the API server is asked at the start, when something has changed on the host, and
// so seldom otherwise that a fleet of thousands does not show. Between two looks the GPUNode is watched.
const (
	period    = 5 * time.Minute
	again     = 6 * time.Hour
	firstWait = 5 * time.Second
)

// Discovery keeps the GPUNode of one node.
type Discovery struct {
	node     string
	host     Host
	nodes    Nodes
	gpuNodes GPUNodes

	// told is what the GPUNode says as far as is known, nil when nothing is; asked when that was read.
	told  *v1alpha1.HardwareStatus
	asked time.Time
	// version is that of the GPUNode as it was last read or written, empty where there is none: from there it is watched.
	version string
	// runtime is what kubelet said of the container runtime.
	runtime string
}

// New returns the discovery of a node.
func New(node string, host Host, nodes Nodes, gpuNodes GPUNodes) *Discovery {
	return &Discovery{node: node, host: host, nodes: nodes, gpuNodes: gpuNodes}
}

// Run looks and tells until ctx ends. An error is logged and tried again soon, later and later up to the usual period. A GPUNode that somebody
// deletes, or takes its hardware from, is told again within seconds.
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

// rest passes the time between two looks. It ends early when the GPUNode has lost what was told.
func (d *Discovery) rest(ctx context.Context, span time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, period) {
		lost := d.told != nil && d.version != "" && d.watch(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(wait + rand.N(wait)): //nolint:gosec // spreads the nodes of a fleet, hides nothing
		}
		if lost {
			d.told = nil
			return
		}
	}
}

// Once looks at the host and writes what has changed. It asks the API server for nothing when nothing has changed and it was asked not long ago.
func (d *Discovery) Once(ctx context.Context) error {
	seen, err := d.host.Look(d.runtime)
	if err != nil {
		return fmt.Errorf("survey the host: %w", err)
	}
	if d.told != nil && reflect.DeepEqual(*d.told, seen) && time.Since(d.asked) < again {
		return nil
	}
	return d.tell(ctx, seen.GPUs > 0)
}

// tell brings the GPUNode to what the host is. A node that never had a GPU gets none.
func (d *Discovery) tell(ctx context.Context, found bool) error {
	current, err := d.gpuNodes.Get(ctx, d.node, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read GPUNode %s: %w", d.node, err)
	}
	if missing && !found {
		seen, err := d.host.Look(d.runtime)
		d.version = ""
		d.know(seen)
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

// update writes what the host is, when that differs from what the GPUNode says.
func (d *Discovery) update(ctx context.Context, said *v1alpha1.HardwareStatus) error {
	seen, err := d.host.Look(d.runtime)
	if err != nil {
		return fmt.Errorf("survey the host: %w", err)
	}
	if said == nil || !reflect.DeepEqual(*said, seen) {
		if err := d.apply(ctx, seen); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Reported the node's hardware", "node", d.node, "hardware", describe(seen))
	}
	d.know(seen)
	return nil
}

func (d *Discovery) know(seen v1alpha1.HardwareStatus) { d.told, d.asked = &seen, time.Now() }

// create makes the GPUNode, which ends with its Node. One that the installer has made meanwhile is as good.
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

// apply writes status.hardware, and nothing else.
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
