package gpus

import (
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// holderRows returns a row per holder, with columns of equal width; wide rows have the claim and the UUID.
func holderRows(g GPU, wide bool) []string {
	rows := make([][]string, len(g.Holders))
	for i, h := range g.Holders {
		rows[i] = []string{amountText(h), slicesText(h), podsText(h)}
		if wide {
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

// drawHolder draws the row of a holder with the partial faults that affect its device and its condition.
func drawHolder(s *output.Screen, row string, g GPU, h Holder) {
	parts := []output.Part{{Text: indent + row}}
	for _, f := range g.Faults {
		if f.partial() && f.Affects(h.Device) {
			parts = append(parts, output.Part{Style: severityStyle(f.Severity), Text: "! " + f.Severity + ": " + f.String() + "  "})
		}
	}
	if h.Condition != "" {
		parts = append(parts, output.Part{Style: output.Red, Text: "! " + h.Condition})
	}
	s.Line(parts...)
}

// amountText returns the holder's profile or share; "all" for the whole GPU.
func amountText(h Holder) string {
	switch {
	case h.Profile != "":
		return h.Profile
	case h.Shares > 0:
		text := Size(h.MemoryBytes)
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

// slicesText returns the memory slices of a MIG device.
func slicesText(h Holder) string {
	switch {
	case h.Start == nil || h.Size == nil:
		return ""
	case *h.Size == 1:
		return fmt.Sprintf("memory slice %d", *h.Start)
	}
	return fmt.Sprintf("memory slices %d-%d", *h.Start, *h.Start+*h.Size-1)
}

// maxPods is the number of pods of a claim that are named.
const maxPods = 3

// podsText returns the names of the holder's pods; without pods, that of its claim.
func podsText(h Holder) string {
	if len(h.Pods) == 0 {
		return fmt.Sprintf("claim %s/%s, used by no pod", h.Claim.Namespace, h.Claim.Name)
	}
	var names []string
	for _, p := range h.Pods[:min(len(h.Pods), maxPods)] {
		name := h.Claim.Namespace + "/" + p.Name
		if p.Phase != "" && p.Phase != "Running" {
			name += " (" + p.Phase + ")"
		}
		names = append(names, name)
	}
	if more := len(h.Pods) - maxPods; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
