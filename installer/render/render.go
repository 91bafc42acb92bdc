// Package render creates the objects for the policies. It is pure: the same input gives the same objects in the same order, and an object must be
// written only if it differs.
package render

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Input is the input of rendering.
type Input struct {
	// Namespace is the installer's namespace, which has all namespaced objects.
	Namespace string
	// Policy is the ClusterPolicy. Unset fields get their defaults here.
	Policy v1alpha1.ClusterPolicy
	// Images are the images of the release, by component.
	Images Images
	// Drivers are the driver DaemonSets that nodes have been granted or can roll back to. A DaemonSet stays until no node has its label, independent
	// of the policy: removing the label removes its pods in the right order.
	Drivers []DriverSet
	// Agents are the agent pools whose label at least one node has. They also stay that long: an agent that stops before its claims are released
	// leaves pods that cannot terminate.
	Agents []string
	// Contents are hashes of the contents of the ConfigMaps and Secrets that the policies refer to, by kind/name (see References). A missing object
	// has no entry.
	Contents map[string]string
	// Keys are the sorted data keys of these objects, by kind/name. Each is mounted as a separate file.
	Keys map[string][]string
	// SchedulerAvailable reports whether a pod of tessera-scheduler is available. Only then are new pods with devices assigned to it.
	SchedulerAvailable bool
	// RuntimeHandler is the handler of the RuntimeClass. Empty: runc.
	RuntimeHandler string
	// ServiceMonitors reports whether the cluster serves that kind.
	ServiceMonitors bool
}

// Images are image references by component.
type Images struct {
	Node      string `json:"node,omitempty"`
	Scheduler string `json:"scheduler,omitempty"`
	// NoScheduler is the reason why the release has no scheduler for the API server. Empty: it has one, or the policy has an image.
	NoScheduler  string `json:"noScheduler,omitempty"`
	Driver       string `json:"driver,omitempty"` // without a tag
	GDS          string `json:"gds,omitempty"`
	GDRCopy      string `json:"gdrcopy,omitempty"`
	DCGM         string `json:"dcgm,omitempty"`
	DCGMExporter string `json:"dcgmExporter,omitempty"`
	VGPUManager  string `json:"vgpuManager,omitempty"`
	// VGPUDeviceManager is NVIDIA's vGPU device manager.
	VGPUDeviceManager string `json:"vgpuDeviceManager,omitempty"`
	// Architectures are the values of the node label kubernetes.io/arch for which Node and Scheduler exist. Empty: all.
	Architectures []string `json:"architectures,omitempty"`
	// DriverVersion is the driver version of the release.
	DriverVersion string `json:"driverVersion,omitempty"`
}

// DriverSet is one driver DaemonSet: a driver for the nodes with one operating system, and one kernel if precompiled.
type DriverSet struct {
	// Owner is the NVIDIADriver's name, or ClusterPolicy/default.
	Owner string
	// Spec is the owner's driver spec. It is ignored for a vGPU host driver, which is defined by the policy.
	Spec v1alpha1.DriverSpec
	Host Host
	// VGPU marks the vGPU host driver.
	VGPU bool
}

// Host is what a driver is selected for. Kernel is used only for precompiled drivers. Architecture has no effect, because images support several.
type Host struct{ OS, Kernel, Architecture string }

// Objects returns all objects of the cluster except those for single nodes. Names are unique per kind. An object in the cluster with the label
// tessera.dev/managed-by=tessera-installer that is not in this list must be deleted, except those for single nodes (DeviceTaintRules
// tessera-maintenance-*, pods and claims of validations and operations). An error names an invalid part of a policy; pass only driver sets for which
// Driver returns no error.
func Objects(in Input) ([]client.Object, error) {
	in.Policy.Spec = in.Policy.Spec.Complete()
	var all []client.Object
	for _, o := range operands() {
		objects, err := o.objects(in)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", o.name, err)
		}
		for _, object := range objects {
			if err := finish(in, o.name, object); err != nil {
				return nil, fmt.Errorf("render %s: %w", o.name, err)
			}
		}
		all = append(all, objects...)
	}
	return all, nil
}
