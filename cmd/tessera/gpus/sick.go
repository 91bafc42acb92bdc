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

// drawHealth draws what is wrong with a GPU, and that it is held.
func drawHealth(s *output.Screen, g GPU, detail Detail, now time.Time) {
	for _, a := range g.Ailments {
		text := a.Severity + ": " + a.String() + where(a) + age(a.Since, now)
		if detail == Full {
			text += meaning(a)
		}
		s.Line(output.Part{Text: indent}, output.Part{Style: styleOfSeverity(a.Severity), Text: "! " + text})
	}
	if h := g.Held; h != nil {
		text := "! held for a remedy"
		if h.Step != "" {
			text += ", step " + h.Step
		}
		text += age(h.Since, now)
		if detail == Full && h.Reason != "" {
			text += ": " + h.Reason
		}
		s.Line(output.Part{Text: indent}, output.Part{Style: output.Yellow, Text: text})
	}
}

// where says which part of the GPU an ailment is of.
func where(a Ailment) string {
	switch {
	case len(a.Slices) == 1:
		return fmt.Sprintf(" on slice %d", a.Slices[0])
	case len(a.Slices) > 1:
		return fmt.Sprintf(" on slices %d-%d", a.Slices[0], a.Slices[len(a.Slices)-1])
	case len(a.Devices) > 0:
		return " on " + strings.Join(a.Devices, ", ")
	}
	return ""
}

// meaning is what the agent says or, where nobody has asked it, what the ailment means.
func meaning(a Ailment) string {
	if a.Message != "" {
		return ": " + a.Message
	}
	return ": " + gpu.Rules{}.Judge(gpu.Signal(a.Signal), a.XID).Meaning
}

// age says since when something is so; nothing where that is not known.
func age(since *metav1.Time, now time.Time) string {
	if since == nil {
		return ""
	}
	return ", since " + duration.HumanDuration(now.Sub(since.Time))
}

func styleOfSeverity(severity string) output.Style {
	if Rank(severity) > int(gpu.Warning) {
		return output.Red
	}
	return output.Yellow
}
