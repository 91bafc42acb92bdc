// Package claims implements the verb claims: the ResourceClaims on GPUs with their state and, when one is not in use, the reason.
package claims

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the list in JSON.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "GPUClaimList"
)

// State is the progress of a claim.
type State string

// The states, in the order in which a claim passes them.
const (
	// Pending: no devices allocated.
	Pending State = "Pending"
	// Allocated: devices allocated, but reserved for no pod.
	Allocated State = "Allocated"
	// Preparing: reserved for pods, none of which runs yet.
	Preparing State = "Preparing"
	// Ready: prepared by the node's agent; no pod runs yet.
	Ready State = "Ready"
	// InUse: a pod runs.
	InUse State = "InUse"
	// Failed: the node's agent refused or lost a device.
	Failed State = "Failed"
	// Deleting: deleted, and waiting for its pods to end.
	Deleting State = "Deleting"
)

// List is the output of the verb.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are ordered by namespace and name.
	Items []Claim `json:"items"`
	// Problems are sentences about objects that could not be listed.
	Problems []string `json:"problems,omitempty"`
}

// Claim is one claim on GPUs.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Pods are those that refer to the claim or for which it is reserved.
	Pods []string `json:"pods"`
	// Node is the node of the devices.
	Node string `json:"node,omitempty"`
	// Devices are the allocated devices of the CLI's drivers.
	Devices []Device `json:"devices"`
	State   State    `json:"state"`
	// Reason is why the claim is not in use.
	Reason string `json:"reason,omitempty"`
}

// Device is an allocated device.
type Device struct {
	Name  string `json:"name"`
	Shape string `json:"shape,omitempty"`
	// Part is the part of the GPU: a MIG profile, an amount of memory, or empty for the whole GPU.
	Part string `json:"part,omitempty"`
	// Index is the NVML index of the GPU.
	Index *int `json:"index,omitempty"`
	// AdminAccess marks a device that is monitored and takes no capacity.
	AdminAccess bool `json:"adminAccess,omitempty"`
}
