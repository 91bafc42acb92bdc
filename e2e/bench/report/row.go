package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Better is the direction in which a figure improves.
type Better string

// The directions.
const (
	Lower  Better = "lower"
	Higher Better = "higher"
)

// Row is one figure. Goal and Met are absent for a figure without a goal.
type Row struct {
	Name   string   `json:"name"`
	Value  float64  `json:"value"`
	Unit   string   `json:"unit"`
	Goal   *float64 `json:"goal,omitempty"`
	Better Better   `json:"better"`
	Met    *bool    `json:"met,omitempty"`
	// Baseline are the same figures of peers, by their names.
	Baseline map[string]float64 `json:"baseline,omitempty"`
}

// Figure is a row without a goal of which less is better.
func Figure(name string, value float64, unit string) Row {
	return Row{Name: name, Value: value, Unit: unit, Better: Lower}
}

// AtMost sets the goal.
func (r Row) AtMost(goal float64) Row { return r.judged(goal, Lower, r.Value <= goal) }

// AtLeast sets the goal of a figure of which more is better.
func (r Row) AtLeast(goal float64) Row { return r.judged(goal, Higher, r.Value >= goal) }

func (r Row) judged(goal float64, better Better, met bool) Row {
	r.Goal, r.Better, r.Met = &goal, better, &met
	return r
}

// Peer adds the figure of a peer.
func (r Row) Peer(peer string, value float64) Row {
	r.Baseline = maps.Clone(r.Baseline)
	if r.Baseline == nil {
		r.Baseline = map[string]float64{}
	}
	r.Baseline[peer] = value
	return r
}

// cells are the columns of the row in the table.
func (r Row) cells() []string {
	goal, verdict := "", ""
	if r.Goal != nil {
		goal = map[Better]string{Lower: "≤ ", Higher: "≥ "}[r.Better] + number(*r.Goal)
	}
	if r.Met != nil {
		verdict = map[bool]string{true: "met", false: "missed"}[*r.Met]
	}
	var peers []string
	for _, peer := range slices.Sorted(maps.Keys(r.Baseline)) {
		peers = append(peers, fmt.Sprintf("%s: %s", peer, number(r.Baseline[peer])))
	}
	return []string{r.Name, number(r.Value), r.Unit, goal, verdict, strings.Join(peers, ", ")}
}

// number formats a figure with its significant digits.
func number(v float64) string {
	digits := 3
	for limit := 1.0; digits > 0 && (v >= limit || v <= -limit); limit *= 10 {
		digits--
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
