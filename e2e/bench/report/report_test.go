package report

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func example() *Report {
	r := New("example", io.Discard)
	r.Add(
		Figure("whole GPU, p99", 4.2049999, "ms").AtMost(5).Peer("peer", 2.25).Peer("other", 1),
		Figure("slice, p99", 12, "ms").AtMost(10),
		Figure("claims", 250.4, "1/s").AtLeast(100),
		Figure("gap", 0, "s").AtMost(0),
		Figure("on disk", 1234.5, "ms"),
	)
	r.Note("%d runs", 3)
	return r
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	if err := example().Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `figure          value  unit  goal           baseline in the same run
whole GPU, p99    4.2  ms    ≤ 5    met     other: 1, peer: 2.25
slice, p99         12  ms    ≤ 10   missed
claims            250  1/s   ≥ 100  met
gap                 0  s     ≤ 0    met
on disk          1234  ms
- 3 runs
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// The form of the files that the architecture page documents.
func TestWrite(t *testing.T) {
	path, err := example().Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"name": "whole GPU, p99", "value": 4.205, "unit": "ms", "goal": 5.0, "better": "lower", "met": true, "baseline": map[string]any{"peer": 2.25, "other": 1.0}},
		{"name": "slice, p99", "value": 12.0, "unit": "ms", "goal": 10.0, "better": "lower", "met": false},
		{"name": "claims", "value": 250.4, "unit": "1/s", "goal": 100.0, "better": "higher", "met": true},
		{"name": "gap", "value": 0.0, "unit": "s", "goal": 0.0, "better": "lower", "met": true},
		{"name": "on disk", "value": 1234.5, "unit": "ms", "better": "lower"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0004: "0", 0.05: "0.05", 0.1234: "0.123", 4.204: "4.2", 42.26: "42.3", 250.4: "250", 123456: "123456"} {
		if got := number(v); got != want {
			t.Errorf("number(%v): got %q, want %q", v, got, want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var s Samples
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := s.Quantile(q); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if got := (Samples{7}).Median(); got != 7 {
		t.Errorf("median of one: got %v", got)
	}
	if got := (Samples)(nil).Median(); got != 0 {
		t.Errorf("median of none: got %v", got)
	}
}

// A run that could not measure everything returns an error and leaves no file.
func TestFailedRun(t *testing.T) {
	t.Chdir("../../..")
	broken := errors.New("broken")
	r := New("failing-test", io.Discard)
	err := run(t.Context(), r, func(context.Context, *Report) error {
		r.Add(Figure("half", 1, "ms"))
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("run: got %v, want %v", err, broken)
	}
	if _, err := os.Stat("bench/out/failing-test.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was written: %v", err)
	}
}
