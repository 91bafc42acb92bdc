// Package phase computes the phase of one node and the next action. It is pure: a table of rules over values, without clock, client or state. The
// controller observes, calls Next, performs the action and observes again, so a crash after any action is equivalent to a restart.
package phase

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Observed is the state of one node at one moment. The controller keeps none of it between observations: state that must persist is stored in the
// GPUNode.
type Observed struct {
	// Now is the time of the observation.
	Now time.Time
	// Wanted is what the policies want for the node, before the rollout grants it.
	Wanted Wanted
	// Spec and Status are those of the GPUNode.
	Spec   v1alpha1.GPUNodeSpec
	Status v1alpha1.GPUNodeStatus
	// Node is the relevant part of the Node object.
	Node Node
	// Placed is the driver that the node's label identifies, read from its DaemonSet. Nil if there is no label or no DaemonSet.
	Placed *v1alpha1.DesiredDriver
	// Driver, Toolkit and Agent are the pods of the operands on the node.
	Driver, Toolkit, Agent Pod
	// Tainted reports whether the GPUs of the node are tainted for a maintenance.
	Tainted bool
	// Drain lists the pods that use the node's GPUs.
	Drain Drain
	// Operation is the pod that changes the MIG mode, if it exists.
	Operation Pod
	// Validation is the running or last validation for the present boot, driver and agent.
	Validation Validation
	// Obstacle is the error of the last decided action, such as a rejection of the API server. Empty means success. It is not persisted: after a
	// restart it is empty and the action is tried.
	Obstacle string
}

// AgentReports reports whether the agent's status is from the current boot.
func (o *Observed) AgentReports() bool {
	return o.Status.Agent != nil && o.Status.Agent.BootID == o.Node.BootID
}

// AgentAccepted reports whether the running agent is registered with kubelet, has published its ResourceSlices and reports the driver.
func (o *Observed) AgentAccepted() bool {
	return o.AgentRuns() && o.Status.Agent.Ready && (o.Status.Agent.DriverVersion != "" || o.Wanted.Sandbox)
}

// AgentRuns reports whether the agent's pod is ready and its status is from that pod in the current boot.
func (o *Observed) AgentRuns() bool {
	return o.Agent.State == PodReady && o.AgentReports() && o.Status.Agent.PodUID == o.Agent.UID
}

// Wanted is what the policies want for a node.
type Wanted struct {
	// Managed reports whether the policy selects the node and the user has not opted out of all operands; the other fields report whether each
	// operand is wanted on the node.
	Managed, Driver, Toolkit, Agent, Validator bool
	// Sandbox reports that the GPUs are for virtual machines and that no driver is wanted.
	Sandbox bool
	// Digest and MIGMode are the driver and the mode that the policies want; the rollout copies them to spec when it grants them. A failed attempt
	// with another digest or mode is discarded. Digest is empty if no driver container is wanted, including for a kept host driver.
	Digest  string
	MIGMode v1alpha1.MIGMode
	// HostDriver and MinVersion define how a driver of the host is handled.
	HostDriver v1alpha1.HostDriverPolicy
	MinVersion string
	// Conflict names the drivers or pools that both select the node. Empty means no conflict.
	Conflict string
	// Upgrade is the upgrade policy of the node's driver, with all defaults set.
	Upgrade Upgrade
}

// Upgrade has the timeouts of an upgrade policy that apply to one node.
type Upgrade struct {
	DriverTimeout, DrainTimeout, WaitTimeout, ValidateTimeout time.Duration
}

// Node has the observed fields of the Node object.
type Node struct {
	// Exists, Ready and Cordoned have their Kubernetes meaning.
	Exists, Ready, Cordoned bool
	// BootID is the boot that kubelet reports.
	BootID string
	// Plugin names the extended resources, such as nvidia.com/gpu, that a device plugin advertises on the node. Empty means none.
	Plugin string
	// OldKubelet is the version of a kubelet that is older than minKubelet. Empty: it is not older, or its version is unknown.
	OldKubelet string
	// Labels are the current operand labels of the Node.
	Labels Labels
}

// PodState is the progress of a pod.
type PodState string

// The states of a pod.
const (
	PodAbsent      PodState = ""            // the pod does not exist
	PodPending     PodState = "Pending"     // not started: the image is being pulled or init containers are running
	PodStarting    PodState = "Starting"    // running and not yet ready
	PodReady       PodState = "Ready"       // ready
	PodSucceeded   PodState = "Succeeded"   // completed successfully
	PodFailed      PodState = "Failed"      // completed with an error, cannot start, or is in a crash loop
	PodTerminating PodState = "Terminating" // is being deleted
)

// Pod is a pod of an operand on the node.
//
// During a rolling update with several pods it is the one with the most progress. UID is compared with status.agent.podUID.
type Pod struct {
	Name, UID string
	State     PodState
	// Digest identifies what the pod runs, from its annotation.
	Digest string
	// Barrier is the MIG mode for which an operation's pod was created. A pod for another mode proves nothing about the desired mode.
	Barrier string
	// Since is when the pod's readiness last changed: the later of its creation and the last transition of its Ready condition, so that a reboot
	// restarts it.
	Since time.Time
	// Reason and Message explain why the pod is not ready: from the first container that reports any; for a host verb, the verb's result.
	Reason, Message string
}

// Drain lists the pods that use the GPUs of a node.
type Drain struct {
	// Holders are the pods that use claims of our drivers on the node. Waited are the holders to wait for before eviction, Blocked those that must
	// not be evicted or whose eviction is refused, with the reason, and Leaving those that are terminating. Pods of the validation and pods that use
	// only adminAccess claims are excluded.
	Holders, Waited, Leaving []string
	Blocked                  []BlockedPod
	// Staying are those of Blocked for whose sake no pod is evicted.
	Staying []BlockedPod
	// Unreadable reports whether a claim could not be read. It counts as in use.
	Unreadable bool
}

// BlockedPod is a pod that cannot be evicted, and the reason.
type BlockedPod struct{ Name, Reason string }

// ValidationState is the progress of a validation.
type ValidationState string

// The states of a validation.
const (
	ValidationNone    ValidationState = ""
	ValidationRunning ValidationState = "Running"
	ValidationPassed  ValidationState = "Passed"
	ValidationFailed  ValidationState = "Failed"
)

// Validation is the state of a validation of the node.
type Validation struct {
	State ValidationState
	// Since is the start time.
	Since time.Time
	// Reason and Message explain a failure.
	Reason, Message string
	// Leftover reports whether objects of an ended validation still exist.
	Leftover bool
	// Begun reports whether a running validation has a claim but no pod yet: the pod could not be created, or the installer was terminated before.
	Begun bool
}
