package gpus

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// holderRows returns the columns of the holders, of equal width for all of them.
func holderRows(g GPU, detail Detail) []string {
	rows := make([][]string, len(g.Holders))
	for i, h := range g.Holders {
		rows[i] = []string{part(h), span(h), who(h)}
		if detail == Full {
			rows[i] = append(rows[i], "claim "+h.Claim.Namespace+"/"+h.Claim.Name, h.UUID)
		}
	}
	lines := make([]string, len(rows))
	for column := range 5 {
		widest := 0
		for _, row := range rows {
			if column < len(row) {
				widest = max(widest, len(row[column]))
			}
		}
		for i, row := range rows {
			if column < len(row) && widest > 0 {
				lines[i] += fmt.Sprintf("%-*s  ", widest, row[column])
			}
		}
	}
	return lines
}

// drawHolder draws the row of a holder, with what is wrong with its part of the GPU.
func drawHolder(s *output.Screen, row string, g GPU, h Holder) {
	parts := []output.Part{{Text: indent + row}}
	for _, a := range g.Ailments {
		if a.partial() && a.Affects(h.Device) {
			parts = append(parts, output.Part{Style: styleOfSeverity(a.Severity), Text: "! " + a.Severity + ": " + a.String() + "  "})
		}
	}
	if h.Condition != "" {
		parts = append(parts, output.Part{Style: output.Red, Text: "! " + h.Condition})
	}
	s.Line(parts...)
}

// part says how much the holder has.
func part(h Holder) string {
	switch {
	case h.Profile != "":
		return h.Profile
	case h.Shares > 0:
		text := size(h.MemoryBytes)
		if h.Compute > 0 {
			text += fmt.Sprintf(", %d %%", h.Compute)
		}
		if h.Shares > 1 {
			text += fmt.Sprintf(", %d shares", h.Shares)
		}
		return text
	}
	return "all"
}

// span says which memory slices a MIG instance has.
func span(h Holder) string {
	switch {
	case h.Start == nil || h.Size == nil:
		return ""
	case *h.Size == 1:
		return fmt.Sprintf("slice %d", *h.Start)
	}
	return fmt.Sprintf("slices %d-%d", *h.Start, *h.Start+*h.Size-1)
}

// mostPods is how many pods of one claim are named.
const mostPods = 3

// who names the pods; a claim without any by itself.
func who(h Holder) string {
	if len(h.Pods) == 0 {
		return fmt.Sprintf("claim %s/%s, used by no pod", h.Claim.Namespace, h.Claim.Name)
	}
	var names []string
	for _, p := range h.Pods[:min(len(h.Pods), mostPods)] {
		name := h.Claim.Namespace + "/" + p.Name
		if p.Phase != "" && p.Phase != "Running" {
			name += " (" + p.Phase + ")"
		}
		names = append(names, name)
	}
	if more := len(h.Pods) - mostPods; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
