package gpu

import (
	"cmp"
	"slices"
	"time"
)

// Judgement is the consequence of a fault: how severe it is and what clears it.
type Judgement struct {
	Severity Severity
	Remedy   Remedy
	// Meaning describes what happened, Help what to do. Each is a sentence without a final period, so that messages can combine
	// them.
	Meaning, Help string
}

// Help texts that several judgements share.
const (
	resetHelp = "drain and reset the GPU"
	linkHelp  = resetHelp + ", then check the fabric manager and the NVLink bridge or baseboard"
)

// conditions has the judgements of all signals except SignalXID.
var conditions = map[Signal]Judgement{
	SignalECC:           {Critical, Reset, "uncorrectable memory errors", resetHelp + "; replace it if the errors recur"},
	SignalRemapPending:  {Critical, Reset, "a row remapping is pending", resetHelp + ": the reset remaps the row"},
	SignalRemapFailed:   {Fatal, Replace, "a row remapping failed", "replace the GPU"},
	SignalRetirePending: {Critical, Reset, "a page retirement is pending", resetHelp + ": the reset retires the page"},
	SignalResetNeeded:   {Critical, Reset, "the driver requires a reset of the GPU", resetHelp},
	SignalRebootNeeded:  {Critical, Reboot, "the driver requires a reboot of the node", "drain and reboot the node"},
	SignalRecovery:      {Critical, Wait, "the driver requires an action that Tessera does not take", "see the kernel log (XID 154) and NVIDIA's documentation of GPU recovery actions"},
	SignalLost:          {Critical, Wait, "the GPU does not respond", "check the kernel log for an XID; if the GPU does not recover, reboot the node"},
	SignalNVLink:        {Critical, Wait, "NVLinks are down", "check the fabric manager and the NVLink bridge or baseboard; if the links stay down, reset the GPU"},
	SignalHeat:          {Warning, Wait, "the hardware slows the GPU down because of heat", "check the fans, the airflow and the room temperature"},
	SignalPower:         {Warning, Wait, "the hardware slows the GPU down because of insufficient power", "check the power supplies and cables"},
	SignalFabric:        {Critical, Wait, "the NVLink fabric is not ready or not healthy", "check the nvidia-fabricmanager service and its log"},
	SignalDriver:        {Critical, Wait, "the driver does not respond", "no action while it is being replaced; otherwise check the driver container and the kernel log"},
}

// Rules judge signals. The zero value is the built-in table (xids and conditions).
type Rules struct {
	// XIDs overrides the judgement of single XIDs. Source: NodeConfig, health.xids.
	XIDs map[int]Judgement
	// Quiet is the quiet period of conditions; zero means DefaultQuiet.
	Quiet time.Duration
}

// Judge returns the judgement of a signal. xid is used with SignalXID only. An unknown XID is Critical with remedy Wait: newer
// drivers have more of them, and none proves that the GPU is healthy. An unknown signal, which a record of another release can contain, is a Warning
// with remedy Reset.
func (r Rules) Judge(s Signal, xid int) Judgement {
	if s == SignalXID {
		return r.judgeXID(xid)
	}
	if j, known := conditions[s]; known {
		return j
	}
	return Judgement{Warning, Reset, "a signal that this release of Tessera does not support", "update Tessera on the node, or reset the GPU"}
}

func (r Rules) judgeXID(xid int) Judgement {
	if j, has := r.XIDs[xid]; has {
		return j
	}
	i, found := slices.BinarySearchFunc(xids, xid, func(x XID, number int) int { return cmp.Compare(x.Number, number) })
	if !found {
		return Judgement{Critical, Wait, "an XID that is not in Tessera's table", "see NVIDIA's XID catalog; health.xids of a NodeConfig can set its severity and remedy"}
	}
	return xids[i].Judgement
}

// XID is the judgement of an XID number.
type XID struct {
	Number int
	Judgement
}

// Table returns all XIDs that have a judgement, including overrides, in ascending order. The caller may modify it.
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

// quiet returns the initial quiet period of the signal. SignalDriver has none: a driver that responds again is the proof. Links
// and fabric are down for a short time after each boot, reset and change of the MIG mode, so that their period is short.
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
