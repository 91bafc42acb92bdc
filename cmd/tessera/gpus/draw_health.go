package gpus

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// drawHealth draws the faults of a GPU and that it is held.
func drawHealth(s *output.Screen, g GPU, now time.Time) {
	for _, f := range g.Faults {
		text := f.Severity + ": " + f.String() + faultScope(f) + sinceText(f.Since, now)
		if s.Wide {
			text += ": " + faultMeaning(f)
		}
		s.Line(output.Part{Text: indent}, output.Part{Style: severityStyle(f.Severity), Text: "! " + text})
	}
	if h := g.Held; h != nil {
		text := "! held for remediation"
		if h.Step != "" {
			text += ", step " + h.Step
		}
		text += sinceText(h.Since, now)
		if s.Wide && h.Reason != "" {
			text += ": " + h.Reason
		}
		s.Line(output.Part{Text: indent}, output.Part{Style: output.Yellow, Text: text})
	}
}

// faultScope returns the memory slices or devices that a fault is limited to, with " on " before; empty for the whole GPU.
func faultScope(f Fault) string {
	switch {
	case len(f.MemorySlices) == 1:
		return fmt.Sprintf(" on memory slice %d", f.MemorySlices[0])
	case len(f.MemorySlices) > 1:
		return fmt.Sprintf(" on memory slices %d-%d", f.MemorySlices[0], f.MemorySlices[len(f.MemorySlices)-1])
	case len(f.Devices) > 0:
		return " on " + strings.Join(f.Devices, ", ")
	}
	return ""
}

// faultMeaning returns the agent's message; without a report, the meaning from the table of faults.
func faultMeaning(f Fault) string {
	if f.Message != "" {
		return f.Message
	}
	return gpu.Rules{}.Judge(gpu.Signal(f.Signal), f.XID).Meaning
}

// sinceText returns ", since" and the time that has passed; empty without a time.
func sinceText(since *metav1.Time, now time.Time) string {
	if since == nil {
		return ""
	}
	return ", since " + duration.HumanDuration(now.Sub(since.Time))
}

func severityStyle(severity string) output.Style {
	if SeverityRank(severity) > int(gpu.Warning) {
		return output.Red
	}
	return output.Yellow
}
