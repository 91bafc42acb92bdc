package gpu

import "time"

// Signal is what tells that something is wrong with a GPU. Its value is the last part of the key of a device taint.
type Signal string

// The signals. An XID is an event, all others are conditions: they are there or not whenever one looks.
const (
	// SignalXID is an error that the driver reports with a number.
	SignalXID Signal = "xid"
	// SignalECC is memory errors that could not be corrected, since the driver was loaded.
	SignalECC Signal = "ecc"
	// SignalRemapPending is a row of memory that the next reset remaps, SignalRemapFailed one that could not be.
	SignalRemapPending Signal = "remap-pending"
	SignalRemapFailed  Signal = "remap-failed"
	// SignalRetirePending is a page of memory, before Ampere, that is retired with the next load of the driver.
	SignalRetirePending Signal = "retire-pending"
	// SignalLost is a GPU that does not answer.
	SignalLost Signal = "lost"
	// SignalNVLink is NVLinks that were up in this boot and are not. In MIG mode nobody can use them, and none is missing.
	SignalNVLink Signal = "nvlink"
	// SignalHeat and SignalPower are the hardware's own brakes, which halve the clocks or worse, for heat and for the power supply.
	SignalHeat  Signal = "heat"
	SignalPower Signal = "power"
	// SignalFabric is a GPU whose NVLink fabric is not ready or says that it is not healthy.
	SignalFabric Signal = "fabric"
	// SignalDriver is a node whose driver does not answer: it is being replaced, or broken.
	SignalDriver Signal = "driver"
)

// Signals returns all signals, in the order in which they are shown.
func Signals() []Signal {
	return []Signal{
		SignalXID, SignalLost, SignalECC, SignalRemapFailed, SignalRemapPending, SignalRetirePending, SignalNVLink, SignalFabric, SignalHeat,
		SignalPower, SignalDriver,
	}
}

// Event is an error at a moment: an XID. Source: nvmlEventSetWait_v2.
type Event struct {
	// GPU is the GPU's name, Placement the MIG device's; without one the whole GPU is meant.
	GPU       string
	Placement Placement
	// UUID is what is in the GPU's place, empty when that is not known.
	UUID string
	// XID is the number.
	XID int
	At  time.Time
	// Count is how many events this stands for, At the time of the last of them; zero stands for one.
	Count int
}

// Condition is what a GPU says of one signal when it is looked at. What it cannot say is not a condition: nothing follows from it.
type Condition struct {
	Signal Signal
	// Placement is that of a MIG device that says it of itself; without one the whole GPU is meant.
	Placement Placement
	// Present is whether it is so.
	Present bool
	// Links is, of SignalNVLink only, how many links are up; Present and Detail do not count there, because only who remembers how many
	// there were knows whether one is missing. LinksUnused is that nobody can use them now, as in MIG mode, so that none is missing.
	Links int
	// Detail is for people, such as "3 errors since the driver was loaded".
	Detail string
}

// LinksUnused stands for a number of links that does not matter.
const LinksUnused = -1

// Checkup is what one look at a GPU's health found.
type Checkup struct {
	// GPU is the GPU's name, UUID what it says it is; empty while it does not answer. One that says its UUID is neither lost nor without
	// a driver, whether or not that stands among the conditions.
	GPU, UUID  string
	Conditions []Condition
	At         time.Time
}

// known reports whether this release knows the signal: records may come from another.
func (s Signal) known() bool {
	_, condition := conditions[s]
	return condition || s == SignalXID
}
