package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Report collects the rows of one run. It is not safe for concurrent use.
type Report struct {
	name     string
	progress io.Writer
	rows     []Row
	notes    []string
}

// New returns an empty report. Progress gets a line at the start of every long step.
func New(name string, progress io.Writer) *Report { return &Report{name: name, progress: progress} }

// Add adds rows.
func (r *Report) Add(rows ...Row) { r.rows = append(r.rows, rows...) }

// Note adds a line below the table, such as why a figure is missing.
func (r *Report) Note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// Doing prints the current step to the progress output.
func (r *Report) Doing(format string, args ...any) {
	fmt.Fprintf(r.progress, "bench-%s: %s\n", r.name, fmt.Sprintf(format, args...)) //nolint:errcheck // errors of the progress output are ignored
}

// Print writes the table and the notes.
func (r *Report) Print(w io.Writer) error {
	table := [][]string{{"figure", "value", "unit", "goal", "", "baseline in the same run"}}
	for _, row := range r.rows {
		table = append(table, row.cells())
	}
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, cells := range table {
		var line strings.Builder
		for i, cell := range cells {
			fill := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 1 {
				cell, fill = fill+cell, "" // figures are aligned at the right
			}
			line.WriteString(cell + fill + "  ")
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	for _, note := range r.notes {
		out.WriteString("- " + note + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// Write writes the rows to <dir>/<name>.json, which it creates or replaces, and returns the path.
func (r *Report) Write(dir string) (string, error) {
	rows := make([]Row, len(r.rows))
	for i, row := range r.rows {
		row.Value = rounded(row.Value)
		for peer, value := range row.Baseline {
			row = row.Peer(peer, rounded(value))
		}
		rows[i] = row
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write the rows of %s: %w", r.name, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, r.name+".json")
	return path, os.WriteFile(path, append(text, '\n'), 0o644)
}

// rounded keeps the significant digits.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
