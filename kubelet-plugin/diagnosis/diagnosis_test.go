package diagnosis

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

var (
	began = time.Date(2026, 11, 22, 18, 0, 0, 500, time.UTC)
	slice = gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Start: 0, Size: 1}}
	next  = gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Start: 1, Size: 1}}
	whole = gpu.Use{Shape: gpu.Whole}
)

func fault(signal gpu.Signal, xid int, severity gpu.Severity, at gpu.Use) gpu.Fault {
	return gpu.Fault{GPU: "gpu-x", Placement: at.Placement, Signal: signal, XID: xid, Severity: severity, Since: began, Last: began, Count: 7, Detail: "7 errors"}
}

func TestOf(t *testing.T) {
	onSlice := fault(gpu.SignalXID, 94, gpu.Critical, slice)
	everywhere := fault(gpu.SignalXID, 79, gpu.Fatal, gpu.Use{})
	warm := fault(gpu.SignalHeat, 0, gpu.Warning, gpu.Use{})
	over := everywhere
	over.Over = began
	tests := map[string]struct {
		faults   []gpu.Fault
		lost     bool
		use      gpu.Use
		healthy  bool
		reason   string
		messages []string
	}{
		"well":                    {use: whole, healthy: true},
		"of the slice":            {faults: []gpu.Fault{onSlice}, use: slice, reason: "XID94", messages: []string{"XID 94 since 2026-11-22T18:00:00Z: "}},
		"of its neighbour":        {faults: []gpu.Fault{onSlice}, use: next, healthy: true},
		"of a part of it":         {faults: []gpu.Fault{onSlice}, use: whole, reason: "XID94"},
		"of the GPU, for a slice": {faults: []gpu.Fault{everywhere}, use: next, reason: "XID79"},
		"shared":                  {faults: []gpu.Fault{everywhere}, use: gpu.Use{Shape: gpu.TimeShare}, reason: "XID79"},
		"served by a daemon":      {faults: []gpu.Fault{everywhere}, use: gpu.Use{Shape: gpu.MPS}, reason: "XID79"},
		"for a virtual machine":   {faults: []gpu.Fault{everywhere}, use: gpu.Use{Shape: gpu.VFIO}, reason: "XID79"},
		"watched":                 {faults: []gpu.Fault{everywhere}, lost: true, use: gpu.Use{Shape: gpu.Monitor}, healthy: true},
		"two, the worst first":    {faults: []gpu.Fault{onSlice, warm, everywhere}, use: slice, reason: "XID79", messages: []string{"; also XID 94, heat"}},
		"a warning":               {faults: []gpu.Fault{warm}, use: whole, healthy: true, reason: "ThermalSlowdown", messages: []string{"heat since"}},
		"over":                    {faults: []gpu.Fault{over}, use: whole, healthy: true},
		"lost":                    {lost: true, use: slice, reason: "GPULost", messages: []string{": lost: the GPU does not respond"}},
		"lost and warm":           {faults: []gpu.Fault{warm}, lost: true, use: slice, reason: "GPULost"},
		"lost after an XID":       {faults: []gpu.Fault{everywhere}, lost: true, use: slice, reason: "XID79"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := gputest.Node(t, "h100x2").GPUs[0]
			g.Faults, g.Lost = test.faults, test.lost
			d := Of(g, test.use, gpu.Rules{})
			if d.Healthy() != test.healthy || d.Reason != test.reason {
				t.Errorf("healthy %t for %q, want %t for %q", d.Healthy(), d.Reason, test.healthy, test.reason)
			}
			if (d.Message() == "") != (test.reason == "") || strings.Contains(d.Message(), "7 errors") {
				t.Errorf("the message is %q", d.Message())
			}
			for _, want := range test.messages {
				if !strings.Contains(d.Message(), want) {
					t.Errorf("the message is %q, want %q", d.Message(), want)
				}
			}
			if strings.Contains(d.Notice(), "since 2026") {
				t.Errorf("the Event is %q", d.Notice())
			}
		})
	}
}

// Words change neither with counts nor with the time when it was last seen.
func TestWordsStay(t *testing.T) {
	g := gputest.Node(t, "h100x2").GPUs[0]
	g.Faults = []gpu.Fault{fault(gpu.SignalECC, 0, gpu.Critical, gpu.Use{})}
	before := Of(g, whole, gpu.Rules{})
	g.Faults[0].Count, g.Faults[0].Detail, g.Faults[0].Last = 1000, "1000 errors", began.Add(time.Hour)
	if after := Of(g, whole, gpu.Rules{}); after.Message() != before.Message() || after.Notice() != before.Notice() {
		t.Errorf("%q became %q", before.Message(), after.Message())
	}
}

func TestEverySignalHasAReason(t *testing.T) {
	word := regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)
	seen := map[string]bool{}
	for _, s := range gpu.Signals() {
		reason := Reason(gpu.Fault{Signal: s, XID: 48})
		if !word.MatchString(reason) || reason == "Fault" || seen[reason] {
			t.Errorf("%s is %q", s, reason)
		}
		seen[reason] = true
	}
}

func TestMessagesFit(t *testing.T) {
	g := gputest.Node(t, "h100x2").GPUs[0]
	for xid := range 200 {
		g.Faults = append(g.Faults, fault(gpu.SignalXID, xid, gpu.Fatal, gpu.Use{}))
	}
	if got := Of(g, whole, gpu.Rules{}).Message(); len(got) > MaxMessage || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
