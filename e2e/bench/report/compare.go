package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// Change is how the ratio of a figure to that of a peer has changed between two runs. The ratios of different machines can be compared, their figures cannot.
type Change struct {
	// Figure has the names of bench and row.
	Figure, Peer string
	// Before and After are the ratios to the peer in the same run.
	Before, After float64
	// Worse is by which factor it is worse; less than 1: it is better.
	Worse float64
}

// Compare returns the changes between the rows that two runs have written, the worst first. Figures that only one of them has, that have no peer or that are 0
// are left out.
func Compare(before, after string) ([]Change, error) {
	old, err := readRatios(before)
	if err != nil {
		return nil, err
	}
	current, err := readRatios(after)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for key, now := range current {
		was, ok := old[key]
		if !ok {
			continue
		}
		c := Change{Figure: key.figure, Peer: key.peer, Before: was.value, After: now.value, Worse: now.value / was.value}
		if now.better == Higher {
			c.Worse = was.value / now.value
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Worse, a.Worse), cmp.Compare(a.Figure, b.Figure), cmp.Compare(a.Peer, b.Peer))
	})
	return changes, nil
}

type ratioKey struct{ figure, peer string }

type ratio struct {
	value  float64
	better Better
}

var errNoRows = errors.New("no bench has written rows into it")

// readRatios reads the ratios of the figures in a folder to those of their peers.
func readRatios(folder string) (map[ratioKey]ratio, error) {
	files, err := fs.Glob(os.DirFS(folder), "*.json")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read the figures in %s: %w", folder, errNoRows)
	}
	ratios := map[ratioKey]ratio{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		var rows []Row
		if err := json.Unmarshal(text, &rows); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(folder, file), err)
		}
		for _, row := range rows {
			for peer, value := range row.Baseline {
				if row.Value > 0 && value > 0 {
					ratios[ratioKey{file[:len(file)-len(".json")] + ": " + row.Name, peer}] = ratio{row.Value / value, row.Better}
				}
			}
		}
	}
	return ratios, nil
}

// PrintChanges writes a table of the changes, and returns the figures that are worse by more than the factor.
func PrintChanges(w io.Writer, changes []Change, most float64) (worse []string, err error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "figure\tpeer\tratio before\tnow\tworse by") //nolint:errcheck // Flush returns it
	names := map[string]bool{}
	for _, c := range changes {
		fmt.Fprintf(table, "%s\t%s\t%.3g\t%.3g\t%.2f\n", c.Figure, c.Peer, c.Before, c.After, c.Worse) //nolint:errcheck // Flush returns it
		if c.Worse > most {
			names[c.Figure] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), table.Flush()
}
