package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNode is what is desired and known of one GPU node, and the only place where the installer remembers anything. It has the node's
// name and ends with it. Writers, by field manager: the installer owns spec, and in status everything but hardware (the
// discovery on the node) and agent (the node agent).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gn
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Driver",type=string,JSONPath=`.status.agent.driverVersion`
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.agent.gpus`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="GPUsHealthy")].status`
// +kubebuilder:printcolumn:name="Product",type=string,JSONPath=`.status.agent.product`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty"`
	// +optional
	Status GPUNodeStatus `json:"status,omitempty"`
}

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNode `json:"items"`
}

// GPUNodeSpec is what the installer wants of the node.
type GPUNodeSpec struct {
	// Driver is the driver that the node is to run. The rollout sets it when the node's turn has come. Absent: none is
	// installed.
	// +optional
	Driver *DesiredDriver `json:"driver,omitempty"`
	// AgentPool is the pool of the node agent, by default default.
	// +optional
	AgentPool string `json:"agentPool,omitempty"`
	// MIGMode is the MIG mode that the node's GPUs are to have; empty leaves it alone.
	// +optional
	MIGMode MIGMode `json:"migMode,omitempty"`
	// Maintenance takes the GPUs out of service: while it is set, the agent refuses new Prepares and names it.
	// +optional
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// Remediations take single GPUs out of service to bring them back to health, at most one for each.
	// +optional
	// +listType=map
	// +listMapKey=gpu
	// +kubebuilder:validation:MaxItems=64
	Remediations []Remediation `json:"remediations,omitempty"`
}

// DesiredDriver identifies a driver.
type DesiredDriver struct {
	// Source is Container or Host.
	// +kubebuilder:validation:Enum=Container;Host
	Source DriverSource `json:"source"`
	// Digest identifies the driver container with all that decides what it installs: image, kind of modules, contents of its
	// ConfigMaps and Secrets. Empty for a host's driver.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Owner is the NVIDIADriver that it comes from, or ClusterPolicy/default.
	// +optional
	Owner string `json:"owner,omitempty"`
	// Version is the driver's version, for people.
	// +optional
	Version string `json:"version,omitempty"`
	// Image is the driver's image, for people.
	// +optional
	Image string `json:"image,omitempty"`
}

// DriverSource is where a driver comes from.
type DriverSource string

// The sources of drivers.
const (
	DriverContainer DriverSource = "Container"
	DriverHost      DriverSource = "Host"
)

// Maintenance is a time without GPUs.
type Maintenance struct {
	// ID is new for every maintenance; the agent repeats it in status.agent.maintenance when it refuses Prepares.
	ID string `json:"id"`
	// Operation is DriverSwap, MIGMode or Removal (the release is being uninstalled).
	// +kubebuilder:validation:Enum=DriverSwap;MIGMode;Removal
	Operation Operation `json:"operation"`
	// Reason is told to users whose pods are refused.
	Reason string `json:"reason"`
	// Since is when it began.
	Since metav1.Time `json:"since"`
}

// Operation is what a maintenance is for.
type Operation string

// The operations.
const (
	OperationDriverSwap Operation = "DriverSwap"
	OperationMIGMode    Operation = "MIGMode"
	OperationRemoval    Operation = "Removal"
)

// GPUNodeStatus is what is known of the node.
type GPUNodeStatus struct {
	// ObservedGeneration is the generation that phase and conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is where the node stands on its way to Ready.
	// +optional
	Phase NodePhase `json:"phase,omitempty"`
	// Step is the step of the upgrade in the phase Upgrading.
	// +optional
	Step UpgradeStep `json:"step,omitempty"`
	// Reason is one word why the node stands there.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people: what, where, what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when phase or step began.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Components are the operands on the node.
	// +optional
	// +listType=map
	// +listMapKey=name
	Components []ComponentStatus `json:"components,omitempty"`
	// Driver is the driver that was installed and validated last: the one that a rollback returns to.
	// +optional
	LastGoodDriver *DesiredDriver `json:"lastGoodDriver,omitempty"`
	// Validated is what the last validation that passed was about: boot and driver.
	// +optional
	Validated *Validated `json:"validated,omitempty"`
	// Attempt is the last driver that failed here; absent when the last one succeeded.
	// +optional
	Attempt *Attempt `json:"attempt,omitempty"`
	// Hardware is what the discovery on the node saw.
	// +optional
	Hardware *HardwareStatus `json:"hardware,omitempty"`
	// Agent is what the node agent says.
	// +optional
	Agent *AgentStatus `json:"agent,omitempty"`
	// Remediations are where the installer stands with GPUs that are not well.
	// +optional
	// +listType=map
	// +listMapKey=gpu
	Remediations []RemediationStatus `json:"remediations,omitempty"`
	// History are the last 32 remediations that are over, the latest first.
	// +optional
	// +listType=atomic
	History []RemediationRecord `json:"history,omitempty"`
	// Conditions: DriverValidated, ToolkitValidated, AgentValidated, WorkloadValidated, GPUsHealthy, RebootRequired, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a GPUNode, besides Ready.
const (
	ConditionDriverValidated   = "DriverValidated"
	ConditionToolkitValidated  = "ToolkitValidated"
	ConditionAgentValidated    = "AgentValidated"
	ConditionWorkloadValidated = "WorkloadValidated"
)

// NodePhase is where a node stands.
type NodePhase string

// The phases of a node.
const (
	PhaseAbsent           NodePhase = "Absent"           // no operand belongs here: opted out, not chosen, no GPU
	PhasePreflight        NodePhase = "Preflight"        // looked at before anything is touched
	PhaseDriverInstalling NodePhase = "DriverInstalling" // the driver container is at work
	PhaseDriverReady      NodePhase = "DriverReady"      // the driver is loaded, the runtime is looked at
	PhaseToolkitReady     NodePhase = "ToolkitReady"     // the runtime reads CDI, the agent is waited for
	PhaseAgentReady       NodePhase = "AgentReady"       // kubelet knows the agent, its slices are accepted
	PhaseValidating       NodePhase = "Validating"       // claims prove it
	PhaseReady            NodePhase = "Ready"
	PhaseUpgrading        NodePhase = "Upgrading"  // out of service for a change; see step
	PhaseBlocked          NodePhase = "Blocked"    // somebody else must act; see reason
	PhaseFailed           NodePhase = "Failed"     // it did not work; see reason
	PhaseRolledBack       NodePhase = "RolledBack" // in service with the last good driver after a failure
)

// UpgradeStep is a step of taking GPUs out of service, changing them, and putting them back.
type UpgradeStep string

// The steps of an upgrade, in their order.
const (
	StepTaint     UpgradeStep = "Taint"     // no new claims: a DeviceTaintRule
	StepRefuse    UpgradeStep = "Refuse"    // the agent refuses Prepares
	StepDrain     UpgradeStep = "Drain"     // holders are evicted; none is prepared at its end
	StepStopAgent UpgradeStep = "StopAgent" // nobody has the driver open
	StepRemove    UpgradeStep = "Remove"    // the old driver's container goes, its modules are unloaded
	StepOperate   UpgradeStep = "Operate"   // the new driver is installed, or the MIG mode changed
	StepStart     UpgradeStep = "Start"     // the agent runs again and its slices are accepted
	StepValidate  UpgradeStep = "Validate"  // claims prove it
	StepRestore   UpgradeStep = "Restore"   // Prepares are answered, the taint goes
)

// ComponentStatus is one operand on the node.
type ComponentStatus struct {
	// Name is driver, toolkit, node-agent or validator.
	Name string `json:"name"`
	// State is Absent, Pending, Starting, Ready or Failed.
	// +kubebuilder:validation:Enum=Absent;Pending;Starting;Ready;Failed
	State ComponentState `json:"state"`
	// Reason is one word why it is in that state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people: what, where, what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Digest is what runs.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Since is when the state began.
	Since metav1.Time `json:"since"`
}

// ComponentState is how far an operand is.
type ComponentState string

// The states of an operand.
const (
	ComponentAbsent   ComponentState = "Absent"
	ComponentPending  ComponentState = "Pending"
	ComponentStarting ComponentState = "Starting"
	ComponentReady    ComponentState = "Ready"
	ComponentFailed   ComponentState = "Failed"
)

// Validated is what a validation was about.
type Validated struct {
	// BootID is the boot in which it passed.
	BootID string `json:"bootID"`
	// Digest is the driver that passed; empty: the host's own.
	// +optional
	Digest string `json:"digest,omitempty"`
	// At is when.
	At metav1.Time `json:"at"`
}

// Attempt counts failures with one driver.
type Attempt struct {
	// Digest is the driver that failed.
	Digest string `json:"digest"`
	// Count is how often.
	Count int32 `json:"count"`
	// Reason is one word why it failed last.
	Reason string `json:"reason"`
	// Message is for people: what failed last, where, what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Last is when it failed last.
	Last metav1.Time `json:"last"`
}

// HardwareStatus is what the discovery reads on the node, whether there is a driver or not.
type HardwareStatus struct {
	// BootID is the boot that it was read in.
	BootID string `json:"bootID"`
	// GPUs counts NVIDIA's display and 3D controllers on the PCI bus.
	GPUs int32 `json:"gpus"`
	// PCI are their PCI device IDs, such as 2330, each once, in order.
	// +optional
	// +listType=atomic
	PCI []string `json:"pci,omitempty"`
	// Kernel is the release of the running kernel. It becomes a part of an image's tag.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._+~-]*)?$`
	Kernel string `json:"kernel"`
	// OS is the operating system as it is written in tags of driver images, such as ubuntu24.04.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9._-]*)?$`
	OS string `json:"os"`
	// OSName is what the operating system calls itself.
	// +optional
	OSName string `json:"osName,omitempty"`
	// Architecture is Go's name of it.
	Architecture string `json:"architecture"`
	// SecureBoot is whether the firmware lets only signed modules in.
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`
	// HostDriver is the version of the driver that the host itself brings; empty: none.
	// +optional
	HostDriver string `json:"hostDriver,omitempty"`
	// LoadedDriver is the version of the modules that are loaded; empty: none.
	// +optional
	LoadedDriver string `json:"loadedDriver,omitempty"`
	// Runtime is the container runtime with its version, such as containerd://2.2.1.
	// +optional
	Runtime string `json:"runtime,omitempty"`
	// CDI is whether the runtime reads CDI specs as it is configured.
	// +optional
	CDI bool `json:"cdi,omitempty"`
}

// AgentStatus is what the node agent says. It is written when it changes.
type AgentStatus struct {
	// Version is the agent's.
	Version string `json:"version"`
	// PodUID is the UID of the agent's pod.
	PodUID string `json:"podUID"`
	// BootID is the boot in which it speaks.
	BootID string `json:"bootID"`
	// Ready is whether kubelet knows the agent and the API server has accepted its slices.
	Ready bool `json:"ready"`
	// DriverVersion is the version of the driver, as NVML says; empty: no driver.
	// +optional
	DriverVersion string `json:"driverVersion,omitempty"`
	// CUDAVersion is the newest CUDA that the driver runs, as NVML says; empty: no driver.
	// +optional
	CUDAVersion string `json:"cudaVersion,omitempty"`
	// GPUs is how many NVML sees.
	// +optional
	GPUs int32 `json:"gpus,omitempty"`
	// Product is their product, that of the first where they differ.
	// +optional
	Product string `json:"product,omitempty"`
	// Memory is that of one GPU in bytes, of the first where they differ.
	// +optional
	Memory int64 `json:"memory,omitempty"`
	// Architecture is the GPUs' generation.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// ComputeCapability is that of the GPUs, such as 9.0.
	// +optional
	ComputeCapability string `json:"computeCapability,omitempty"`
	// Clique is clusterUUID.cliqueID of the NVLink fabric across nodes; empty: none.
	// +optional
	Clique string `json:"clique,omitempty"`
	// MIGCapable is whether any GPU can be sliced.
	// +optional
	MIGCapable bool `json:"migCapable,omitempty"`
	// MIGMode is Enabled, Disabled or Mixed, of the GPUs that can be sliced.
	// +optional
	MIGMode string `json:"migMode,omitempty"`
	// MIGPending is whether a mode waits for a reset.
	// +optional
	MIGPending bool `json:"migPending,omitempty"`
	// Maintenance repeats the ID of spec.maintenance once Prepares are refused. It is told in maintenance only.
	// +optional
	Maintenance string `json:"maintenance,omitempty"`
	// PreparedClaims is then the number of claims that are still prepared on the node. It is told in maintenance only.
	// +optional
	PreparedClaims *int32 `json:"preparedClaims,omitempty"`
	// Faults are what is wrong with GPUs, Warning or worse, at most 64: the worst first.
	// +optional
	// +listType=atomic
	Faults []GPUFault `json:"faults,omitempty"`
	// Remediations are how far the agent is with spec.remediations.
	// +optional
	// +listType=map
	// +listMapKey=id
	Remediations []AgentRemediation `json:"remediations,omitempty"`
}
