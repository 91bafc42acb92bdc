package main

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

const (
	// machine is the hardware of every node: few devices, so that the slices of 5,000 nodes fit the API
	// server.
	machine     = "t4x1"
	gpusPerNode = 1
	// writers is the number of concurrent writes.
	writers = 16
)

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// populate creates nodes with the reports of discovery and agents.
func (b *bench) populate(ctx context.Context, s *stage) error {
	hardware, err := catalog.FindMachine(machine)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range b.nodes {
		group.Go(func() error { return s.add(ctx, hardware, bare(nodeName(i)), v1alpha1.GPUNodeSpec{}) })
	}
	return group.Wait()
}

// bare is a node without any operand.
func bare(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
	}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: name, ContainerRuntimeVersion: "containerd://2.2.1", OperatingSystem: "linux"}}}
}

// add creates one node, its slices and its GPUNode with the report of the discovery.
func (s *stage) add(ctx context.Context, hardware catalog.Machine, node *corev1.Node, spec v1alpha1.GPUNodeSpec) error {
	name := node.Name
	node, err := s.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := s.publish(ctx, hardware, name); err != nil {
		return err
	}
	gpunode := &v1alpha1.GPUNode{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
	}}
	if err := s.Kinds.Create(ctx, gpunode); err != nil {
		return err
	}
	return s.writeStatus(ctx, name, "tessera-discovery", map[string]any{"hardware": v1alpha1.HardwareStatus{
		BootID: name, GPUs: gpusPerNode, PCI: []string{"1eb8"}, Kernel: "6.8.0-60-generic", OS: "ubuntu24.04", Architecture: "amd64",
		Runtime: "containerd://2.2.1", CDI: true,
	}})
}

// writeStatus writes a part of the status of a GPUNode as the owner of that part.
func (s *stage) writeStatus(ctx context.Context, name, owner string, status any) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "GPUNode", "metadata": map[string]any{"name": name}, "status": status,
	})
	if err != nil {
		return err
	}
	object := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.Kinds.Status().Patch(ctx, object, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(owner), client.ForceOwnership)
}

// publish writes the node's slices.
func (s *stage) publish(ctx context.Context, hardware catalog.Machine, name string) error {
	node, err := hardware.Node(name)
	if err != nil {
		return err
	}
	pool, err := wire.Encode(node, wire.Options{
		Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.Monitor}, Shares: 1},
	})
	if err != nil {
		return err
	}
	for i, content := range pool.Slices {
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", pool.Name, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, NodeName: &name, Devices: content.Devices, SharedCounters: content.SharedCounters,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		}
		if _, err := s.Client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
