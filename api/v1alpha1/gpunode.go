package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNode is the desired and observed state of one GPU node. It has the name of the node and is deleted with it; the installer keeps no other state. Fields
// are written with server-side apply: status.hardware by the discovery on the node, status.agent by the node agent, spec and the rest of status by the
// installer.
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
// +kubebuilder:printcolumn:name="Kernel",type=string,priority=1,JSONPath=`.status.hardware.kernel`
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

// GPUNodeSpec is the desired state of the node. The installer writes it.
type GPUNodeSpec struct {
	// Driver is the desired driver. The rollout sets it when the node may be upgraded. Absent: no driver is installed.
	// +optional
	Driver *DesiredDriver `json:"driver,omitempty"`
	// AgentPool is the name of the node agent's pool. Default: default.
	// +optional
	AgentPool string `json:"agentPool,omitempty"`
	// MIGMode is the desired MIG mode of the node's GPUs. Empty: the mode is not changed.
	// +optional
	MIGMode MIGMode `json:"migMode,omitempty"`
	// DriverRestart is the UID of the driver's pod for which the node may be drained. The rollout sets it to status.driverRestart.
	// +optional
	DriverRestart string `json:"driverRestart,omitempty"`
	// Maintenance takes the GPUs out of service. While it is set, the agent refuses to prepare new claims and reports its ID.
	// +optional
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// Remediations are orders to the agent for faulted GPUs, at most one for each GPU.
	// +optional
	// +listType=map
	// +listMapKey=gpu
	// +kubebuilder:validation:MaxItems=64
	Remediations []Remediation `json:"remediations,omitempty"`
	// DeviceTaint makes the agent publish all devices with the taint tessera.dev/maintenance and this value, as the operation of a maintenance requires. It is
	// set where the API server serves no DeviceTaintRules.
	// +optional
	// +kubebuilder:validation:Enum=DriverSwap;MIGMode;Removal
	DeviceTaint Operation `json:"deviceTaint,omitempty"`
}

// DesiredDriver identifies a driver.
type DesiredDriver struct {
	// Source is Container or Host.
	// +kubebuilder:validation:Enum=Container;Host
	Source DriverSource `json:"source"`
	// Digest identifies the driver container by everything that requires a reinstallation: image, module type, contents of its ConfigMaps and Secrets.
	// Empty for a driver of the host.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Owner is the NVIDIADriver that selects the driver, or ClusterPolicy/default.
	// +optional
	Owner string `json:"owner,omitempty"`
	// Version is the version of the driver. Informational.
	// +optional
	Version string `json:"version,omitempty"`
	// Image is the image of the driver. Informational.
	// +optional
	Image string `json:"image,omitempty"`
	// OS is the operating system of the driver's image. A rollback does not return to a driver of another operating system. Empty: unknown.
	// +optional
	OS string `json:"os,omitempty"`
	// Kernel is the kernel of a precompiled driver. A rollback does not return to a driver of another kernel. Empty: any kernel.
	// +optional
	Kernel string `json:"kernel,omitempty"`
}

// DriverSource is where a driver comes from.
type DriverSource string

// The sources of drivers.
const (
	DriverContainer DriverSource = "Container"
	DriverHost      DriverSource = "Host"
)

// Maintenance is a period in which the GPUs of a node are out of service.
type Maintenance struct {
	// ID identifies the maintenance. The agent repeats it in status.agent.maintenance once it refuses claims.
	ID string `json:"id"`
	// Operation is DriverSwap, MIGMode or Removal (the release is being uninstalled).
	// +kubebuilder:validation:Enum=DriverSwap;MIGMode;Removal
	Operation Operation `json:"operation"`
	// Reason is part of the message for users whose claims are refused.
	Reason string `json:"reason"`
	// Since is when the maintenance started.
	Since metav1.Time `json:"since"`
}

// Operation is the purpose of a maintenance.
type Operation string

// The operations.
const (
	OperationDriverSwap Operation = "DriverSwap"
	OperationMIGMode    Operation = "MIGMode"
	OperationRemoval    Operation = "Removal"
)

// GPUNodeStatus is the observed state of the node.
type GPUNodeStatus struct {
	// ObservedGeneration is the generation for which phase and conditions were determined.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase is the phase of the node.
	// +optional
	Phase NodePhase `json:"phase,omitempty"`
	// Step is the step of the upgrade in the phase Upgrading.
	// +optional
	Step UpgradeStep `json:"step,omitempty"`
	// Reason is the machine-readable cause of the phase.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message describes the cause and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the phase or step started.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Components are the operands on the node.
	// +optional
	// +listType=map
	// +listMapKey=name
	Components []ComponentStatus `json:"components,omitempty"`
	// LastGoodDriver is the last driver that passed validation. A rollback returns to it.
	// +optional
	LastGoodDriver *DesiredDriver `json:"lastGoodDriver,omitempty"`
	// Validated is the boot and the driver of the last passed validation.
	// +optional
	Validated *Validated `json:"validated,omitempty"`
	// Attempt is the last failed driver. Absent if the last driver succeeded.
	// +optional
	Attempt *Attempt `json:"attempt,omitempty"`
	// DriverRestart is the UID of the driver's pod if it cannot start while pods use the loaded driver. Absent if it runs, or failed otherwise.
	// +optional
	DriverRestart string `json:"driverRestart,omitempty"`
	// Hardware is the report of the discovery.
	// +optional
	Hardware *HardwareStatus `json:"hardware,omitempty"`
	// Agent is the report of the node agent.
	// +optional
	Agent *AgentStatus `json:"agent,omitempty"`
	// Remediations is the progress with faulted GPUs.
	// +optional
	// +listType=map
	// +listMapKey=gpu
	Remediations []RemediationStatus `json:"remediations,omitempty"`
	// History has the last 32 completed remediations, the latest first.
	// +optional
	// +listType=atomic
	History []RemediationRecord `json:"history,omitempty"`
	// Conditions: DriverValidated, ToolkitValidated, AgentValidated, WorkloadValidated, GPUsHealthy, RebootRequired, DriverRefuses, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a GPUNode in addition to Ready.
const (
	ConditionDriverValidated   = "DriverValidated"
	ConditionToolkitValidated  = "ToolkitValidated"
	ConditionAgentValidated    = "AgentValidated"
	ConditionWorkloadValidated = "WorkloadValidated"
)

// NodePhase is the phase of a node.
type NodePhase string

// The phases of a node.
const (
	PhaseAbsent           NodePhase = "Absent"           // no operands: opted out, not selected, or no GPU
	PhasePreflight        NodePhase = "Preflight"        // the node is checked before the first change
	PhaseDriverInstalling NodePhase = "DriverInstalling" // the driver container installs the driver
	PhaseDriverReady      NodePhase = "DriverReady"      // the driver is loaded, the runtime is checked
	PhaseToolkitReady     NodePhase = "ToolkitReady"     // the runtime reads CDI, the agent starts
	PhaseAgentReady       NodePhase = "AgentReady"       // the agent is registered and its ResourceSlices are published
	PhaseValidating       NodePhase = "Validating"       // claims test the node
	PhaseReady            NodePhase = "Ready"
	PhaseUpgrading        NodePhase = "Upgrading"  // out of service for a change; see step
	PhaseBlocked          NodePhase = "Blocked"    // an administrator or another program must act; see reason
	PhaseFailed           NodePhase = "Failed"     // the node could not be brought into service; see reason
	PhaseRolledBack       NodePhase = "RolledBack" // in service with the last good driver after a failure
)

// UpgradeStep is a step of taking GPUs out of service, changing them, and putting them back.
type UpgradeStep string

// The steps of an upgrade, in their order.
const (
	StepTaint     UpgradeStep = "Taint"     // no new claims: a DeviceTaintRule, or spec.deviceTaint
	StepRefuse    UpgradeStep = "Refuse"    // the agent refuses to prepare claims
	StepDrain     UpgradeStep = "Drain"     // pods with claims are evicted until no claim is prepared
	StepStopAgent UpgradeStep = "StopAgent" // the agent closes the driver
	StepRemove    UpgradeStep = "Remove"    // the old driver container is removed, its modules are unloaded
	StepOperate   UpgradeStep = "Operate"   // the new driver is installed, or the MIG mode changed
	StepStart     UpgradeStep = "Start"     // the agent runs again and its ResourceSlices are published
	StepValidate  UpgradeStep = "Validate"  // claims test the node
	StepRestore   UpgradeStep = "Restore"   // claims are prepared again, the taint is removed
)

// ComponentStatus is one operand on the node.
type ComponentStatus struct {
	// Name is driver, toolkit, node-agent, validator, or vgpu-device-manager on nodes with its pod.
	Name string `json:"name"`
	// State is Absent, Pending, Starting, Ready or Failed.
	// +kubebuilder:validation:Enum=Absent;Pending;Starting;Ready;Failed
	State ComponentState `json:"state"`
	// Reason is the machine-readable cause of the state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message describes the cause and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Digest identifies the running revision.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Since is when the state began.
	Since metav1.Time `json:"since"`
}

// ComponentState is the state of an operand.
type ComponentState string

// The states of an operand.
const (
	ComponentAbsent   ComponentState = "Absent"
	ComponentPending  ComponentState = "Pending"
	ComponentStarting ComponentState = "Starting"
	ComponentReady    ComponentState = "Ready"
	ComponentFailed   ComponentState = "Failed"
)

// Validated identifies what a validation tested.
type Validated struct {
	// BootID is the boot in which the validation passed.
	BootID string `json:"bootID"`
	// Digest is that of the driver. Empty for a driver of the host.
	// +optional
	Digest string `json:"digest,omitempty"`
	// At is when the validation passed.
	At metav1.Time `json:"at"`
	// Message names devices on which nothing could be computed, and why, such as a GPU in MIG mode without MIG devices. Empty if every device
	// computed.
	// +optional
	Message string `json:"message,omitempty"`
}

// Attempt counts the failures of one driver.
type Attempt struct {
	// Digest is the driver that failed.
	Digest string `json:"digest"`
	// Count is the number of failures.
	Count int32 `json:"count"`
	// Reason is the machine-readable cause of the last failure.
	Reason string `json:"reason"`
	// Message describes the last failure and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Last is the time of the last failure.
	Last metav1.Time `json:"last"`
}

// AgentStatus is the report of the node agent, written when it changes.
type AgentStatus struct {
	// Version is the version of the agent.
	Version string `json:"version"`
	// PodUID is the UID of the agent's pod.
	PodUID string `json:"podUID"`
	// BootID is the boot of the report.
	BootID string `json:"bootID"`
	// Ready reports whether the agent is registered with kubelet and its ResourceSlices are published.
	Ready bool `json:"ready"`
	// Message describes why the agent cannot use the driver, for example because a library is missing, and what to do. Empty: it can.
	// +optional
	Message string `json:"message,omitempty"`
	// DriverVersion is the version of the driver from NVML. Empty: no driver.
	// +optional
	DriverVersion string `json:"driverVersion,omitempty"`
	// CUDAVersion is the newest CUDA version that the driver supports, from NVML. Empty: no driver.
	// +optional
	CUDAVersion string `json:"cudaVersion,omitempty"`
	// GPUs is the number of GPUs from NVML.
	// +optional
	GPUs int32 `json:"gpus,omitempty"`
	// Product has the names of the products, separated by commas, that of the first GPU first.
	// +optional
	Product string `json:"product,omitempty"`
	// Memory is the memory of the first GPU, in bytes.
	// +optional
	Memory int64 `json:"memory,omitempty"`
	// Architecture is the architecture of the GPUs, such as Hopper.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// ComputeCapability is the CUDA compute capability of the GPUs, such as 9.0.
	// +optional
	ComputeCapability string `json:"computeCapability,omitempty"`
	// Clique is clusterUUID.cliqueID of the NVLink fabric across nodes. Empty: none.
	// +optional
	Clique string `json:"clique,omitempty"`
	// MIGCapable reports whether a GPU of the node supports MIG.
	// +optional
	MIGCapable bool `json:"migCapable,omitempty"`
	// MIGMode is Enabled, Disabled or Mixed for the GPUs that support MIG.
	// +optional
	MIGMode string `json:"migMode,omitempty"`
	// MIGPending reports whether a change of the MIG mode requires a reset.
	// +optional
	MIGPending bool `json:"migPending,omitempty"`
	// BusyGPUs are GPUs on which the driver refuses what claims need because a program has them open.
	// +optional
	// +listType=map
	// +listMapKey=gpu
	BusyGPUs []BusyGPU `json:"busyGPUs,omitempty"`
	// Maintenance repeats the ID of spec.maintenance once the agent refuses claims. Set during maintenance only.
	// +optional
	Maintenance string `json:"maintenance,omitempty"`
	// PreparedClaims is the number of claims that are prepared on the node. Set during maintenance only.
	// +optional
	PreparedClaims *int32 `json:"preparedClaims,omitempty"`
	// Faults are the current faults with severity Warning or worse, at most 64, the most severe first.
	// +optional
	// +listType=atomic
	Faults []GPUFault `json:"faults,omitempty"`
	// Remediations is the progress of the agent with spec.remediations.
	// +optional
	// +listType=map
	// +listMapKey=id
	Remediations []AgentRemediation `json:"remediations,omitempty"`
}
