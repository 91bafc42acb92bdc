package report

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompare: the machine of the second run has half the speed, which changes no ratio.
func TestCompare(t *testing.T) {
	write := func(rows ...Row) string {
		r := New("node", io.Discard)
		r.Add(rows...)
		dir := t.TempDir()
		if _, err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	before := write(Figure("latency", 4, "ms").Peer("peer", 2), Row{Name: "claims", Value: 100, Better: Higher}.Peer("peer", 50), Figure("same", 1, "ms").Peer("peer", 1),
		Figure("gone", 1, "ms").Peer("peer", 1), Figure("idle", 0, "ms").Peer("peer", 1))
	after := write(Figure("latency", 12, "ms").Peer("peer", 4), Row{Name: "claims", Value: 25, Better: Higher}.Peer("peer", 25), Figure("same", 2, "ms").Peer("peer", 2),
		Figure("new", 1, "ms").Peer("peer", 1), Figure("idle", 0, "ms").Peer("peer", 1), Figure("alone", 7, "ms"))
	changes, err := Compare(before, after)
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{Figure: "node: claims", Peer: "peer", Before: 2, After: 1, Worse: 2},
		{Figure: "node: latency", Peer: "peer", Before: 2, After: 3, Worse: 1.5},
		{Figure: "node: same", Peer: "peer", Before: 1, After: 1, Worse: 1},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	var out strings.Builder
	worse, err := PrintChanges(&out, changes, 1.5)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"node: claims"}, worse); diff != "" {
		t.Errorf("worse by more than 1.5 (-want +got):\n%s", diff)
	}
	if got := strings.Split(out.String(), "\n")[1]; got != "node: claims   peer  2             1    2.00" {
		t.Errorf("printed %q", got)
	}
}

func TestCompareNothing(t *testing.T) {
	if _, err := Compare(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no bench has written rows into it") {
		t.Errorf("two empty folders: %v", err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "node.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Compare(broken, broken); err == nil || !strings.Contains(err.Error(), "node.json") {
		t.Errorf("no JSON: %v", err)
	}
}
