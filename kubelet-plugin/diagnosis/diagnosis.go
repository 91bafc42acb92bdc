// Package diagnosis puts into words what is wrong with a device: for kubelet, for the claims' status, for Events and for the GPUNode. Which
// faults a device has part in and how bad they are is api/gpu's; here is only what it is called. It is pure.
//
// Nothing here counts or tells when something was last seen: the words stay the same while the same is wrong, however often the hardware says
// so, and so no part is written twice.
package diagnosis

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// MaxMessage is the longest message in bytes: that of an Event's note, and of a container's resource health.
const MaxMessage = 1024

// Diagnosis is what is wrong with one device; the zero value is that nothing is.
type Diagnosis struct {
	// Severity is the worst fault's, Harmless when nothing is wrong.
	Severity gpu.Severity
	// Reason is the worst fault in one word in CamelCase, such as XID79 or GPULost.
	Reason string
	// Since is when the worst fault was first seen; zero where that is not known.
	Since time.Time
	// gpu is the GPU's name, what the worst fault, advice what it means and what to do.
	gpu, what, advice string
	// also are the other faults.
	also []string
}

// Of returns what is wrong with a use of the GPU, in the words of the rules. A monitor is never ill: it is for finding out.
func Of(g gpu.GPU, u gpu.Use, rules gpu.Rules) Diagnosis {
	d := Diagnosis{gpu: g.Name()}
	for i, f := range g.FaultsAffecting(u) {
		if i > 0 {
			d.also = append(d.also, f.String())
			continue
		}
		d.Severity, d.Since = f.Severity, f.Since
		d.setFault(f, rules)
	}
	if g.Lost && d.Healthy() && u.Shape != gpu.Monitor && u.Shape != gpu.None {
		f := gpu.Fault{GPU: d.gpu, Signal: gpu.SignalLost}
		return Diagnosis{gpu: d.gpu, Severity: max(gpu.Critical, rules.Judge(gpu.SignalLost, 0).Severity)}.withFault(f, rules)
	}
	return d
}

// OfFault returns the diagnosis of a single fault.
func OfFault(f gpu.Fault, rules gpu.Rules) Diagnosis {
	return Diagnosis{gpu: f.GPU, Severity: f.Severity, Since: f.Since}.withFault(f, rules)
}

func (d Diagnosis) withFault(f gpu.Fault, rules gpu.Rules) Diagnosis {
	d.setFault(f, rules)
	return d
}

func (d *Diagnosis) setFault(f gpu.Fault, rules gpu.Rules) {
	d.Reason, d.what, d.advice = Reason(f), f.String(), Advice(f, rules)
}

// Healthy reports whether nothing is wrong that keeps claims off the device.
func (d Diagnosis) Healthy() bool { return d.Severity < gpu.Critical }

// Message says what is wrong, since when, and what to do; empty when nothing is.
func (d Diagnosis) Message() string {
	since := ""
	if !d.Since.IsZero() {
		since = " since " + d.Since.UTC().Format(time.RFC3339)
	}
	return d.compose(since)
}

// Notice is Message without the time, for Events, which have their own: one that comes and goes has always the same.
func (d Diagnosis) Notice() string { return d.compose("") }

// Over says that it is over.
func (d Diagnosis) Over() string { return fmt.Sprintf("%s: %s is over", d.gpu, d.what) }

func (d Diagnosis) compose(since string) string {
	if d.what == "" {
		return ""
	}
	text := fmt.Sprintf("%s: %s%s: %s", d.gpu, d.what, since, d.advice)
	if len(d.also) > 0 {
		text += "; also " + strings.Join(d.also, ", ")
	}
	return Clip(text)
}

// Advice is what a fault means and what to do.
func Advice(f gpu.Fault, rules gpu.Rules) string {
	j := rules.Judge(f.Signal, f.XID)
	return j.Meaning + "; " + j.Help
}

// reasons are the signals in one word; XIDs have their number.
var reasons = map[gpu.Signal]string{
	gpu.SignalXID: "XID", gpu.SignalECC: "MemoryErrors", gpu.SignalRemapPending: "RowRemapPending", gpu.SignalRemapFailed: "RowRemapFailed",
	gpu.SignalRetirePending: "PageRetirementPending", gpu.SignalLost: "GPULost", gpu.SignalNVLink: "NVLinkDown", gpu.SignalHeat: "ThermalSlowdown",
	gpu.SignalPower: "PowerBrake", gpu.SignalFabric: "FabricNotReady", gpu.SignalDriver: "DriverAway",
	gpu.SignalResetNeeded: "ResetNeeded", gpu.SignalRebootNeeded: "RebootNeeded", gpu.SignalRecovery: "RecoveryNeeded",
}

// Reason returns the fault in one word in CamelCase.
func Reason(f gpu.Fault) string {
	if f.Signal == gpu.SignalXID {
		return reasons[f.Signal] + strconv.Itoa(f.XID)
	}
	if word, known := reasons[f.Signal]; known {
		return word
	}
	return "Fault"
}

// Clip shortens a text to what its readers take.
func Clip(text string) string {
	if len(text) <= MaxMessage {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:MaxMessage-len(more)], "") + more
}
