package gpu

import "time"

// Signal is what detects a fault. Its value is the name part of the key of the device taint.
type Signal string

// The signals. An XID is an event. All others are conditions, which are present or absent at a check.
const (
	// SignalXID is an error that the driver reports with a number (nvmlEventTypeXidCriticalError).
	SignalXID Signal = "xid"
	// SignalECC is uncorrected memory errors since the driver was loaded.
	SignalECC Signal = "ecc"
	// SignalRemapPending is a row of memory that the next reset remaps. SignalRemapFailed is a row that could not be remapped.
	// Both exist from Ampere on (nvmlDeviceGetRemappedRows).
	SignalRemapPending Signal = "remap-pending"
	SignalRemapFailed  Signal = "remap-failed"
	// SignalRetirePending is a page of memory, before Ampere, that is retired when the driver is loaded again.
	SignalRetirePending Signal = "retire-pending"
	// SignalResetNeeded and SignalRebootNeeded are a reset of the GPU and a reboot of the node that the driver requires. SignalRecovery is any other
	// action that it requires, including those that this release does not support (nvmlDeviceGpuRecoveryAction_t, drivers after 550).
	SignalResetNeeded  Signal = "reset-needed"
	SignalRebootNeeded Signal = "reboot-needed"
	SignalRecovery     Signal = "recovery"
	// SignalLost is a GPU that does not respond.
	SignalLost Signal = "lost"
	// SignalNVLink is NVLinks that are down and were up earlier in this boot. In MIG mode links cannot be used, and none counts
	// as down.
	SignalNVLink Signal = "nvlink"
	// SignalHeat and SignalPower are hardware slowdowns, which halve the clocks or reduce them further, because of the
	// temperature and of the power supply.
	SignalHeat  Signal = "heat"
	SignalPower Signal = "power"
	// SignalFabric is an NVLink fabric that is not ready, or that reports itself as unhealthy.
	SignalFabric Signal = "fabric"
	// SignalDriver is a driver that does not respond: it is being replaced, or it failed.
	SignalDriver Signal = "driver"
)

// Signals returns all signals, in the order in which they are listed and published.
func Signals() []Signal {
	return []Signal{
		SignalXID, SignalLost, SignalECC, SignalRemapFailed, SignalRemapPending, SignalRetirePending, SignalRebootNeeded, SignalResetNeeded,
		SignalRecovery, SignalNVLink, SignalFabric, SignalHeat, SignalPower, SignalDriver,
	}
}

// Event is an XID at a point in time. Source: nvmlEventSetWait_v2.
type Event struct {
	// GPU is the GPU's name. Placement is that of the affected MIG device; the zero value means the whole GPU.
	GPU       string
	Placement Placement
	// UUID identifies the hardware at that PCI address; empty if unknown.
	UUID string
	// XID is the number. At is when the event was received.
	XID int
	At  time.Time
	// Count is the number of equal events that were combined, At then being the time of the last one. Zero means one.
	Count int
}

// Condition is the state of one signal at a check. A signal that the hardware cannot report has no Condition, and nothing is
// concluded from it.
type Condition struct {
	Signal Signal
	// Placement is that of the MIG device that reports the condition; the zero value means the whole GPU.
	Placement Placement
	// Present reports whether the problem exists. It is ignored for SignalNVLink.
	Present bool
	// Links, for SignalNVLink only, is the number of links that are up. Health.Check sets Present and Detail from it, because
	// only the recorded maximum shows how many are missing. LinksUnused means that links cannot be used now, as in MIG mode.
	Links int
	// Detail is a description for messages, such as "3 errors since the driver was loaded".
	Detail string
}

// LinksUnused is the value of Condition.Links when the number of links is irrelevant.
const LinksUnused = -1

// Checkup is the result of one health check of a GPU.
type Checkup struct {
	// GPU is the GPU's name. UUID is what the GPU reports, empty if it does not respond. A GPU that reports its UUID is neither
	// lost nor without a driver, independent of Conditions.
	GPU, UUID  string
	Conditions []Condition
	At         time.Time
}

// known reports whether this release has the signal. Records can be from another release.
func (s Signal) known() bool {
	_, condition := conditions[s]
	return condition || s == SignalXID
}
