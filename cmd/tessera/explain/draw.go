package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// draw writes the explanation for people: a summary and a table of all nodes.
func draw(s *output.Screen, e Explanation) {
	s.Line(output.Part{Style: output.Bold, Text: "pod/" + e.Pod}, output.Part{Text: ": " + summary(e)})
	if len(e.Nodes) == 0 {
		return
	}
	s.Line()
	var rows [][]string
	for _, n := range e.Nodes {
		rows = append(rows, []string{n.Name, verdict(e, n), score(n), strings.Join(n.Devices, ","), n.Reason})
	}
	s.Table(output.Columns("NODE", "VERDICT", "SCORE", "DEVICES", "REASON"), rows)
}

func summary(e Explanation) string {
	switch {
	case e.BoundNode != "":
		return "is bound to " + e.BoundNode
	case len(e.Chosen) > 1:
		return "would be bound to one of " + strings.Join(e.Chosen, ", ")
	case len(e.Chosen) == 1:
		return "would be bound to " + e.Chosen[0]
	case e.Rejection != "" && len(e.Nodes) == 0:
		return "fits on no node: " + e.Rejection
	}
	return "fits on no node"
}

func verdict(e Explanation, n Node) string {
	switch {
	case slices.Contains(e.Chosen, n.Name):
		return "chosen"
	case n.Fits:
		return "fits"
	}
	return "no"
}

func score(n Node) string {
	if n.Score == nil {
		return ""
	}
	return fmt.Sprint(*n.Score)
}
