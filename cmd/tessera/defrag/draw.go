package defrag

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// draw writes the plan for people: a summary, a table of the moves, and which pods stay.
func draw(s *output.Screen, p Plan) {
	s.Line(output.Part{Style: output.Bold, Text: "pod/" + p.Pod}, output.Part{Text: ": " + summary(p)})
	if len(p.Moves) > 0 {
		s.Line()
		var rows [][]string
		for _, m := range p.Moves {
			running := duration.HumanDuration(time.Duration(m.RunningSeconds) * time.Second)
			rows = append(rows, []string{strings.Join(m.Pods, ","), fmt.Sprint(m.Priority), running, place(m.From), place(m.To)})
		}
		s.Table(output.Columns("MOVE", "PRIORITY", "RUNNING", "FROM", "TO"), rows)
	}
	if len(p.Excluded) > 0 && p.Outcome != Fits {
		s.Line()
		s.Line(output.Part{Text: "Not moved:"})
		for _, e := range p.Excluded {
			s.Line(output.Part{Text: fmt.Sprintf("  %s: %s", e.Reason, strings.Join(e.Pods, ", "))})
		}
	}
	if len(p.Delegated) > 0 {
		s.Line()
		s.Line(output.Part{Text: "Nodes left out, on which Tessera's plugin does not decide: " + strings.Join(p.Delegated, ", ")})
	}
}

func summary(p Plan) string {
	gets := place(Place{p.Node, p.Devices})
	switch p.Outcome {
	case Fits:
		return "fits without a move and gets " + gets
	case Movable:
		moves := "1 move"
		if len(p.Moves) > 1 {
			moves = fmt.Sprintf("%d moves", len(p.Moves))
		}
		return fmt.Sprintf("fits after %s and gets %s", moves, gets)
	case Unknown:
		return "the cluster has too many possible moves: the search ended at its limit without a plan"
	case Impossible:
	}
	return fmt.Sprintf("neither one move nor two make room (%d considered)", p.Considered)
}

func place(p Place) string { return p.Node + " " + strings.Join(p.Devices, ",") }
