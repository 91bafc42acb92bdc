// Package render makes the objects that policies ask for. It is pure: the same input gives the same objects in the same order, and an object
// that differs is one that must be written.
package render

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Input is everything that objects are made of.
type Input struct {
	// Namespace is the installer's own; all namespaced objects live in it.
	Namespace string
	// Policy is the ClusterPolicy; what it leaves open is completed here.
	Policy v1alpha1.ClusterPolicy
	// Images are the images of the release, by component.
	Images Images
	// Drivers are the driver DaemonSets that nodes are granted or can be rolled back to. One stays until no node has its label any
	// more, whatever the policy says by then: the label takes its pods away in the right order.
	Drivers []DriverSet
	// Agents are the pools of the node agent whose label some node carries. They stay as long, too: an agent that goes before its claims are
	// released leaves pods that never end.
	Agents []string
	// Contents are hashes of the contents of the ConfigMaps and Secrets that the policies name, by kind/name (see References); one that does
	// not exist is absent.
	Contents map[string]string
	// Keys are the keys of their data, sorted, by kind/name: each is mounted as a file of its own.
	Keys map[string][]string
	// ServiceMonitors is whether the cluster serves that kind.
	ServiceMonitors bool
}

// Images are references by component.
type Images struct {
	Node         string `json:"node,omitempty"`
	Scheduler    string `json:"scheduler,omitempty"`
	Driver       string `json:"driver,omitempty"` // without a tag
	GDS          string `json:"gds,omitempty"`
	GDRCopy      string `json:"gdrcopy,omitempty"`
	DCGM         string `json:"dcgm,omitempty"`
	DCGMExporter string `json:"dcgmExporter,omitempty"`
	Validator    string `json:"validator,omitempty"`
	VGPUManager  string `json:"vgpuManager,omitempty"`
	// DriverVersion is the version of the driver of the release.
	DriverVersion string `json:"driverVersion,omitempty"`
}

// DriverSet is one driver DaemonSet: a driver for the nodes of one operating system, and of one kernel when it is precompiled.
type DriverSet struct {
	// Owner is the NVIDIADriver's name, or ClusterPolicy/default.
	Owner string
	// Spec is what the owner says. It is not read for a vGPU host driver, which is all in the policy.
	Spec v1alpha1.DriverSpec
	Host Host
	// VGPU makes it the vGPU host driver.
	VGPU bool
}

// Host is what a driver is chosen for. Kernel is read for precompiled drivers only; nothing depends on Architecture, since images are made
// for several.
type Host struct{ OS, Kernel, Architecture string }

// Objects returns all objects of the cluster, without those of single nodes. Names are unique by kind. What is in the cluster with the label
// tessera.dev/managed-by=tessera-installer and not in this list is to be removed, but for what is made for single nodes (DeviceTaintRules
// tessera-maintenance-*, the pods and claims of validations and operations). An error names what is wrong in a policy: give it only driver sets
// for which Driver has none.
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
