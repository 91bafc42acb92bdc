package clustertest

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Now is the current time of every scene.
var Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Ago returns Now minus d.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now.Add(-d)) }

// Taint adds a taint of the driver to the devices of a node's GPU that a fault of the placement affects; the zero placement is the whole GPU. name is that
// of a signal.
func (s *Scene) Taint(node string, index int, part gpu.Placement, name, value string, effect resourceapi.DeviceTaintEffect, added metav1.Time) {
	s.tb.Helper()
	fault := gpu.Fault{Placement: part}
	var affected []string
	for _, d := range s.published(node, index).Devices {
		if fault.Affects(d.Use) {
			affected = append(affected, d.Name)
		}
	}
	for _, object := range s.Objects {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok || *slice.Spec.NodeName != node {
			continue
		}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if slices.Contains(affected, d.Name) {
				d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: Driver + "/" + name, Value: value, Effect: effect, TimeAdded: &added})
			}
		}
	}
}

// GPUName returns the name of a node's GPU.
func (s *Scene) GPUName(node string, index int) string { return s.published(node, index).Name }

func (s *Scene) published(node string, index int) wire.PublishedGPU {
	s.tb.Helper()
	var list []resourceapi.ResourceSlice
	for _, object := range s.Objects {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok && *slice.Spec.NodeName == node {
			list = append(list, *slice)
		}
	}
	for _, r := range wire.Read(list) {
		for _, g := range r.GPUs {
			if g.GPU.Index == index {
				return g
			}
		}
	}
	s.tb.Fatalf("node %s publishes no GPU %d", node, index)
	return wire.PublishedGPU{}
}

// GPUNode adds a GPUNode in service with the status that the installer and the agent write.
func (s *Scene) GPUNode(name string) *v1alpha1.GPUNode {
	node := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, Reason: "InService", Since: Ago(time.Hour),
			Hardware: &v1alpha1.HardwareStatus{BootID: "boot-2", GPUs: 8, LoadedDriver: "580.65.06"},
			Agent:    &v1alpha1.AgentStatus{BootID: "boot-2", Ready: true, DriverVersion: "580.65.06", GPUs: 8},
		},
	}
	s.Add(node)
	return node
}
