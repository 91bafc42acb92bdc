package gpus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The type of the list in JSON and YAML.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "GPUList"
)

// List is the output of the verb; schema.json describes its JSON.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are ordered by node, driver and index.
	Items []GPU `json:"items"`
	// Problems are sentences about inconsistent or unreadable objects.
	Problems []string `json:"problems,omitempty"`
}

// GPU is one GPU. A field is absent when the GPU's devices do not publish it.
type GPU struct {
	Node   string `json:"node"`
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	// Name is the GPU's name in device names and records, Index its NVML index.
	Name         string `json:"name"`
	Index        int    `json:"index"`
	UUID         string `json:"uuid,omitempty"`
	Product      string `json:"product,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	PCI          string `json:"pci,omitempty"`
	NUMA         *int   `json:"numa,omitempty"`
	// DriverVersion is written as NVIDIA does, such as 580.65.06.
	DriverVersion string `json:"driverVersion,omitempty"`
	CUDAVersion   string `json:"cudaVersion,omitempty"`
	MemoryBytes   uint64 `json:"memoryBytes,omitempty"`
	// Offers are the shapes that claims can request. Shape is the current one: idle, gpu, mig, timeshare, mps or vfio.
	Offers []string `json:"offers"`
	Shape  string   `json:"shape"`
	// MemorySlices are the memory slices of a GPU that supports MIG.
	MemorySlices *MemorySlices `json:"memorySlices,omitempty"`
	// Shared is the use of a GPU in a shared shape.
	Shared *Shared `json:"shared,omitempty"`
	// Holders are the claims with a device of the GPU, by first memory slice, then claim. Monitors are claims with admin access, which
	// take no capacity.
	Holders  []Holder `json:"holders,omitempty"`
	Monitors []Holder `json:"monitors,omitempty"`
	// Faults are the GPU's faults, the most severe first. Held is set while the GPU is out of service for remediation.
	Faults []Fault `json:"faults,omitempty"`
	Held   *Held   `json:"held,omitempty"`
	Taints []Taint `json:"taints,omitempty"`
	// Conflicts are sentences about allocations that overlap with others. They are in the problems of the list, too.
	Conflicts []string `json:"conflicts,omitempty"`
}

// Fault is a fault of a GPU or of a part of it.
type Fault struct {
	// Severity is Warning, Critical or Fatal.
	Severity string `json:"severity"`
	// Signal is what detected it, such as xid. XID is the number of an XID.
	Signal string `json:"signal"`
	XID    int    `json:"xid,omitempty"`
	// Remedy is what clears it: Wait, Restart, Reset, Reboot or Replace.
	Remedy string `json:"remedy,omitempty"`
	// Message is the agent's.
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	// Devices are the affected devices, Slices their memory slices. Both are absent when the whole GPU is affected.
	Devices      []string `json:"devices,omitempty"`
	MemorySlices []int    `json:"memorySlices,omitempty"`
}

// Held describes why and since when a GPU is out of service for remediation.
type Held struct {
	Since *metav1.Time `json:"since,omitempty"`
	// Step is the step of the remediation; absent where GPUNodes do not exist or are not readable.
	Step   string `json:"step,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// MemorySlices are memory slices by number.
type MemorySlices struct {
	Total int   `json:"total"`
	Used  []int `json:"used"`
	Free  []int `json:"free"`
	// Withheld are memory slices of MIG devices that Tessera did not create. Claims cannot get them.
	Withheld []int `json:"withheld,omitempty"`
}

// Shared is the capacity of a shared GPU and the part that is allocated.
type Shared struct {
	MemoryBytes     uint64 `json:"memoryBytes"`
	UsedMemoryBytes uint64 `json:"usedMemoryBytes"`
	Shares          int    `json:"shares"`
	UsedShares      int    `json:"usedShares"`
	// MemoryEnforced is hard if the driver limits the memory of each claim's containers, otherwise none; absent if it is not published.
	MemoryEnforced string `json:"memoryEnforced,omitempty"`
	// Compute is the sum of the claims' limits, in percent of the multiprocessors.
	Compute int `json:"compute,omitempty"`
}

// Holder is one allocated device of the GPU with its claim.
type Holder struct {
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	// Profile, Start and Size describe a MIG device.
	Profile string `json:"profile,omitempty"`
	Start   *int   `json:"start,omitempty"`
	Size    *int   `json:"size,omitempty"`
	// MemoryBytes, Shares and Compute describe a share.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	Shares      int    `json:"shares,omitempty"`
	Compute     int    `json:"compute,omitempty"`
	// Containers are those whose memory the driver limits; absent unless they were requested.
	Containers []Container `json:"containers,omitempty"`
	// UUID is that of the prepared MIG device or GPU.
	UUID  string `json:"uuid,omitempty"`
	Claim Claim  `json:"claim"`
	// Pods are those for which the claim is reserved.
	Pods []Pod `json:"pods"`
	// Condition is the reason and message of a condition that is False in the claim's status, other than that of health.
	Condition string `json:"condition,omitempty"`
	// Severity is that of the most severe fault that affects the device.
	Severity string `json:"severity,omitempty"`
}

// Container is a container with the memory that it has allocated of the GPU, and the limit, in bytes.
type Container struct {
	Pod        string `json:"pod"`
	Name       string `json:"name"`
	UsedBytes  uint64 `json:"usedBytes"`
	LimitBytes uint64 `json:"limitBytes"`
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
	// Phase is absent when the pod does not exist or is not readable.
	Phase string `json:"phase,omitempty"`
}

// Taint is a taint on devices of the GPU.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
	// Since is when the first of the devices was tainted.
	Since *metav1.Time `json:"since,omitempty"`
	// Devices are the tainted devices; absent when all devices of the GPU are tainted, monitors aside.
	Devices []string `json:"devices,omitempty"`
}
