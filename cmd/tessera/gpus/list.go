package gpus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the answer in JSON.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "GPUList"
)

// List is the answer; schema.json describes it.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are by node, driver and index.
	Items []GPU `json:"items"`
	// Problems are what does not fit together, in sentences.
	Problems []string `json:"problems,omitempty"`
}

// GPU is one GPU. What its devices do not tell is absent.
type GPU struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	// Name is the GPU's name in devices and records, Index NVML's index.
	Name          string `json:"name"`
	Index         int    `json:"index"`
	UUID          string `json:"uuid,omitempty"`
	Product       string `json:"product,omitempty"`
	Architecture  string `json:"architecture,omitempty"`
	PCI           string `json:"pci,omitempty"`
	NUMA          *int   `json:"numa,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	MemoryBytes   uint64 `json:"memoryBytes,omitempty"`
	// Offers are the shapes that claims can have, Shape is the one that it has now: idle, gpu, mig,
	// timeshare, mps or vfio.
	Offers []string `json:"offers"`
	Shape  string   `json:"shape"`
	// Slices are the memory slices of a GPU that can be partitioned.
	Slices *Slices `json:"slices,omitempty"`
	// Shared is how far a GPU in a shared shape is shared out.
	Shared *Shared `json:"shared,omitempty"`
	// Holders are the claims that hold a part, by first slice, then claim. Monitors watch and hold nothing.
	Holders  []Holder `json:"holders,omitempty"`
	Monitors []Holder `json:"monitors,omitempty"`
	// Ailments are what is wrong with it, the worst first. Held is set while it is out of service for a remedy.
	Ailments []Ailment `json:"ailments,omitempty"`
	Held     *Held     `json:"held,omitempty"`
	Taints   []Taint   `json:"taints,omitempty"`
	// Conflicts are holders that do not fit beside the others, in sentences that are among the problems of the list, too.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Ailment is something that is wrong with a GPU or a part of it.
type Ailment struct {
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	// Signal is what tells it, such as xid; XID is the number of one.
	Signal string `json:"signal"`
	XID    int    `json:"xid,omitempty"`
	// Remedy is what ends it: Wait, Restart, Reset, Reboot or Replace.
	Remedy string `json:"remedy,omitempty"`
	// Message is what the node's agent says.
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Devices are those that have part in it, Slices their part of the GPU; absent when all of the GPU has.
	Devices []string `json:"devices,omitempty"`
	Slices  []int    `json:"slices,omitempty"`
}

// Held is a GPU that is out of service until it is well.
type Held struct {
	Since *metav1.Time `json:"since,omitempty"`
	// Step is how far its remediation is; absent where the cluster has no GPUNodes.
	Step   string `json:"step,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Slices are memory slices by number.
type Slices struct {
	Total int   `json:"total"`
	Used  []int `json:"used"`
	Free  []int `json:"free"`
	// Withheld are slices that nobody may take: something lives there that Tessera did not make.
	Withheld []int `json:"withheld,omitempty"`
}

// Shared is what there is to share out, and what is shared out.
type Shared struct {
	MemoryBytes     uint64 `json:"memoryBytes"`
	UsedMemoryBytes uint64 `json:"usedMemoryBytes"`
	Shares          int    `json:"shares"`
	UsedShares      int    `json:"usedShares"`
	// Compute is the percentage of multiprocessors that claims stated as their limit.
	Compute int `json:"compute,omitempty"`
}

// Holder is a claim on a GPU with one of its devices.
type Holder struct {
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	// Profile, Start and Size are the MIG instance.
	Profile string `json:"profile,omitempty"`
	Start   *int   `json:"start,omitempty"`
	Size    *int   `json:"size,omitempty"`
	// MemoryBytes, Shares and Compute are the share.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	Shares      int    `json:"shares,omitempty"`
	Compute     int    `json:"compute,omitempty"`
	// UUID is the one of the device that was prepared: of the MIG device or the GPU.
	UUID  string `json:"uuid,omitempty"`
	Claim Claim  `json:"claim"`
	// Pods are those for which the claim is reserved.
	Pods []Pod `json:"pods"`
	// Condition is what the node's agent says of the device when it is not as it should be.
	Condition string `json:"condition,omitempty"`
	// Severity is that of the worst ailment in which the device has part.
	Severity string `json:"severity,omitempty"`
}

// Claim names a ResourceClaim.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Pod is a pod of the claim's namespace.
type Pod struct {
	Name string `json:"name"`
	// Phase is absent when the pod is not there, or may not be looked at.
	Phase string `json:"phase,omitempty"`
}

// Taint is a taint on devices of the GPU.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
	// Since is when the first of them was added.
	Since *metav1.Time `json:"since,omitempty"`
	// Devices are the tainted ones; absent when all of the GPU's are. A monitor need not be.
	Devices []string `json:"devices,omitempty"`
}
