// Package phase decides what becomes of one node: it names the phase that an observed node is in and the next action. It is pure: a
// table over values, without clock, client or memory. The controller observes, asks Next, has the action performed and observes again, so a crash
// after any action is the same as a new start.
package phase

import (
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Observed is one node as it is at one moment. Nothing in it is remembered by the controller: what must outlive it stands in the
// GPUNode.
type Observed struct {
	// Now is the time of the observation.
	Now time.Time
	// Wanted is what policies want of the node, before the rollout grants it.
	Wanted Wanted
	// Spec and Status are the GPUNode's.
	Spec   v1alpha1.GPUNodeSpec
	Status v1alpha1.GPUNodeStatus
	// Node is the Node object's part.
	Node Node
	// Placed is the driver that the node's label stands for, as its DaemonSet says; nil where there is no label or no DaemonSet.
	Placed *v1alpha1.DesiredDriver
	// Driver, Toolkit, Agent are the pods of the operands on the node.
	Driver, Toolkit, Agent Pod
	// Tainted is whether the DeviceTaintRule of the node stands.
	Tainted bool
	// Drain is what holds the node's GPUs.
	Drain Drain
	// Operation is the pod that changes the MIG mode, when there is one.
	Operation Pod
	// Validation is the validation that runs or ran last for the present boot, driver and agent.
	Validation Validation
	// Obstacle is why the action that was decided last could not be performed, such as what the API server said; empty: it was. Who starts anew
	// knows of none, and tries.
	Obstacle string
}

// AgentSpeaks reports whether what the agent says is of this boot.
func (o *Observed) AgentSpeaks() bool {
	return o.Status.Agent != nil && o.Status.Agent.BootID == o.Node.BootID
}

// AgentAccepted reports whether the agent that runs now is known to kubelet and its slices to the API server, with the driver.
func (o *Observed) AgentAccepted() bool {
	return o.AgentRuns() && o.Status.Agent.Ready && (o.Status.Agent.DriverVersion != "" || o.Wanted.Sandbox)
}

// AgentRuns reports whether the agent's pod is ready, and it is that pod which speaks in this boot.
func (o *Observed) AgentRuns() bool {
	return o.Agent.State == PodReady && o.AgentSpeaks() && o.Status.Agent.PodUID == o.Agent.UID
}

// Wanted is what policies want of a node.
type Wanted struct {
	// Managed is whether the policy chooses the node at all and the user has not opted out of all operands; the others whether
	// each operand is wanted there.
	Managed, Driver, Toolkit, Agent, Validator bool
	// Sandbox: the GPUs belong to virtual machines, no driver is wanted.
	Sandbox bool
	// Digest and MIGMode are the driver and the mode that policies want; spec has them once the rollout has granted them. An attempt that
	// failed with another is forgotten. Digest is empty where no container is wanted, a kept host's driver included.
	Digest  string
	MIGMode v1alpha1.MIGMode
	// HostDriver and MinVersion: what becomes of a host's driver.
	HostDriver v1alpha1.HostDriverPolicy
	MinVersion string
	// Conflict, when set, says which drivers or pools both choose the node.
	Conflict string
	// Upgrade is the policy of the node's driver, complete.
	Upgrade Upgrade
}

// Upgrade are the parts of an upgrade policy that concern one node.
type Upgrade struct {
	DriverTimeout, DrainTimeout, WaitTimeout, ValidateTimeout time.Duration
}

// Node is what the Node object says.
type Node struct {
	// Exists, Ready and Cordoned are as Kubernetes means them.
	Exists, Ready, Cordoned bool
	// BootID is the boot that kubelet reports.
	BootID string
	// Plugin, when set, names the foreign resources, such as nvidia.com/gpu, that a device plugin offers on the node.
	Plugin string
	// Labels are those by which operands come and go, as they are on the Node now.
	Labels Labels
}

// PodState is how far a pod is.
type PodState string

// The states of a pod.
const (
	PodAbsent      PodState = ""            // there is none
	PodPending     PodState = "Pending"     // not started: no image yet, init containers at work
	PodStarting    PodState = "Starting"    // runs and is not ready yet
	PodReady       PodState = "Ready"       // ready
	PodSucceeded   PodState = "Succeeded"   // ended well
	PodFailed      PodState = "Failed"      // ended badly, cannot start, or starts again and again
	PodTerminating PodState = "Terminating" // is being deleted
)

// Pod is a pod of an operand on the node.
//
// Of several, during a rolling update, it is the one that is furthest. UID is compared with status.agent.podUID.
type Pod struct {
	Name, UID string
	State     PodState
	// Digest is what the pod runs, from its annotation.
	Digest string
	// Barrier is what the pod of an operation is for: the MIG mode. One that stands in the way of another mode proves nothing about that one.
	Barrier string
	// Since is since when it is ready, or not: the later of its creation and the last change of its condition Ready, so that a reboot
	// begins it anew.
	Since time.Time
	// Reason and Message say why it is not ready: the first of its containers that says something; for a host verb, the verb's own result.
	Reason, Message string
}

// Drain is what holds the GPUs of a node.
type Drain struct {
	// Holders are the pods that use claims of our drivers on the node, Waited those of them that are waited for first, Blocked those that
	// may not be evicted or whose eviction is refused, with the reason; Leaving those that are being deleted already. Pods of the
	// validation are none of them, and pods that hold nothing but adminAccess claims are not either.
	Holders, Waited, Leaving []string
	Blocked                  []BlockedPod
	// Staying are those of Blocked that are not even asked to go.
	Staying []BlockedPod
	// Unreadable is whether some claim could not be read: it counts as in use.
	Unreadable bool
}

// BlockedPod is a pod that does not leave.
type BlockedPod struct{ Name, Reason string }

// ValidationState is how far a validation is.
type ValidationState string

// The states of a validation.
const (
	ValidationNone    ValidationState = ""
	ValidationRunning ValidationState = "Running"
	ValidationPassed  ValidationState = "Passed"
	ValidationFailed  ValidationState = "Failed"
)

// Validation is a validation of the node.
type Validation struct {
	State ValidationState
	// Since is when it began.
	Since time.Time
	// Reason and Message say why it failed.
	Reason, Message string
	// Leftover is whether objects of a validation that is over still stand.
	Leftover bool
	// Begun is whether one that runs has its claim and not yet its pod: an installer could not make it, or was killed before it did.
	Begun bool
}
