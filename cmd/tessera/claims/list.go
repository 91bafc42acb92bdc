// Package claims is the verb claims: every claim on GPUs, how far it has come, and why it waits.
package claims

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the answer in JSON.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "GPUClaimList"
)

// State is how far a claim has come.
type State string

// The states, in the order of a claim's life.
const (
	// Pending is a claim without devices.
	Pending State = "Pending"
	// Allocated has devices, but no pod may use it.
	Allocated State = "Allocated"
	// Preparing has devices and pods, which do not run yet.
	Preparing State = "Preparing"
	// Ready has devices that the node's agent has prepared; its pods do not run yet.
	Ready State = "Ready"
	// InUse has a pod that runs.
	InUse State = "InUse"
	// Failed has a device that the node's agent refused or lost.
	Failed State = "Failed"
	// Deleting is being deleted and waits for its pods.
	Deleting State = "Deleting"
)

// List is the answer.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are by namespace and name.
	Items []Claim `json:"items"`
	// Problems are what could not be found out, in sentences.
	Problems []string `json:"problems,omitempty"`
}

// Claim is one claim on GPUs.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Pods are those that use or want the claim.
	Pods []string `json:"pods"`
	// Node is where the devices are.
	Node string `json:"node,omitempty"`
	// Devices are the allocated ones, with the words in which people ask for them.
	Devices []Device `json:"devices"`
	State   State    `json:"state"`
	// Reason says why the claim is not in use.
	Reason string `json:"reason,omitempty"`
}

// Device is an allocated device.
type Device struct {
	Name  string `json:"name"`
	Shape string `json:"shape,omitempty"`
	// What says how much of a GPU it is: a MIG profile, an amount of memory, or empty for all.
	What string `json:"what,omitempty"`
	// Index is NVML's index of the GPU.
	Index *int `json:"index,omitempty"`
	// AdminAccess marks a device that is watched and not held.
	AdminAccess bool `json:"adminAccess,omitempty"`
}
