package gpu

import (
	"cmp"
	"slices"
	"time"
)

// Judgement is what a fault means and what follows from it.
type Judgement struct {
	Severity Severity
	Remedy   Remedy
	// Meaning is what happened, Help what to do, in a sentence each without a full stop.
	Meaning, Help string
}

// What several judgements advise.
const (
	resetHelp = "let the GPU be drained and reset"
	linkHelp  = "let the GPU be drained and reset; then check the fabric manager, the bridge or the baseboard"
)

// conditions are the judgements of everything but XIDs.
var conditions = map[Signal]Judgement{
	SignalECC:           {Critical, Reset, "memory errors that could not be corrected", "let the GPU be drained and reset; replace it when this comes again"},
	SignalRemapPending:  {Critical, Reset, "a row of memory is going to be remapped", "let the GPU be drained and reset: the reset remaps the row"},
	SignalRemapFailed:   {Fatal, Replace, "a row of memory could not be remapped", "replace the GPU"},
	SignalRetirePending: {Critical, Reset, "a page of memory is going to be retired", "let the GPU be drained and reset: the reset retires the page"},
	SignalLost:          {Critical, Wait, "the GPU does not answer", "look into the kernel's log for its XID; reboot the node when it does not come back"},
	SignalNVLink:        {Critical, Wait, "NVLinks are down", "check the fabric manager, the bridge or the baseboard; reset the GPU when they stay down"},
	SignalHeat:          {Warning, Wait, "the hardware slows the GPU down for heat", "check fans, airflow and the temperature of the room"},
	SignalPower:         {Warning, Wait, "the hardware slows the GPU down for lack of power", "check power supplies and cables"},
	SignalFabric:        {Critical, Wait, "the NVLink fabric is not ready or not healthy", "check nvidia-fabricmanager and its log"},
	SignalDriver:        {Critical, Wait, "the driver does not answer", "nothing while it is being replaced; else look at the driver's container and the kernel's log"},
}

// Rules judge what the hardware tells. The zero value is the table of this package.
type Rules struct {
	// XIDs are judged otherwise than in the table.
	XIDs map[int]Judgement
	// Quiet is how long a condition must be gone before its fault is over, DefaultQuiet when zero.
	Quiet time.Duration
}

// Judge returns what a signal means; xid counts for SignalXID only. A signal that this release does not know means that
// something is wrong which another release has seen.
func (r Rules) Judge(s Signal, xid int) Judgement {
	if s == SignalXID {
		return r.judgeXID(xid)
	}
	if j, known := conditions[s]; known {
		return j
	}
	return Judgement{Warning, Reset, "a signal that this release of Tessera does not know", "update Tessera on the node, or reset the GPU"}
}

func (r Rules) judgeXID(xid int) Judgement {
	if j, has := r.XIDs[xid]; has {
		return j
	}
	i, found := slices.BinarySearchFunc(xids, xid, func(x XID, number int) int { return cmp.Compare(x.Number, number) })
	if !found {
		return Judgement{Warning, Wait, "an XID that Tessera does not know", "look it up in NVIDIA's XID catalog; a NodeConfig can say what it means here"}
	}
	return xids[i].Judgement
}

// XID is what an XID means.
type XID struct {
	Number int
	Judgement
}

// Table returns every XID that is judged by its number, in ascending order.
func (r Rules) Table() []XID {
	table := slices.DeleteFunc(slices.Clone(xids), func(x XID) bool {
		_, otherwise := r.XIDs[x.Number]
		return otherwise
	})
	for number, j := range r.XIDs {
		table = append(table, XID{number, j})
	}
	slices.SortFunc(table, func(a, b XID) int { return cmp.Compare(a.Number, b.Number) })
	return table
}

// quiet is how long the signal must be gone before it is over by itself. A driver that answers again is all that was missing; links
// and a fabric take a while after every boot, reset and change of mode, and the first time they say that they are ready is nearly believed.
func (r Rules) quiet(s Signal) time.Duration {
	quiet := cmp.Or(r.Quiet, DefaultQuiet)
	if s == SignalDriver {
		return 0
	}
	if s == SignalFabric || s == SignalNVLink {
		return min(quiet, linkQuiet)
	}
	return quiet
}
