package gpu_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// TestTable checks the form of every judgement, and the severities of the XIDs with consequences against NVIDIA's catalog.
func TestTable(t *testing.T) {
	t.Parallel()
	var rules gpu.Rules
	table := rules.Table()
	if len(table) < 100 || !slices.IsSortedFunc(table, func(a, b gpu.XID) int { return cmp.Compare(a.Number, b.Number) }) {
		t.Errorf("%d XIDs, ascending: want more than 100", len(table))
	}
	for i, x := range table {
		if i > 0 && table[i-1].Number == x.Number {
			t.Errorf("XID %d is judged twice", x.Number)
		}
		if rules.Judge(gpu.SignalXID, x.Number) != x.Judgement {
			t.Errorf("the judgement of XID %d differs from its row", x.Number)
		}
		formed(t, x.Judgement)
		if x.Severity == gpu.Fatal && x.Remedy < gpu.Reset {
			t.Errorf("XID %d is Fatal and %v ends it", x.Number, x.Remedy)
		}
	}
	for _, s := range gpu.Signals() {
		formed(t, rules.Judge(s, 0))
	}
	// The immediate actions of the catalog are, in this order: RESET_GPU and similar, RESTART_BM, RESTART_APP with CHECK_APP,
	// IGNORE.
	for severity, numbers := range map[gpu.Severity][]int{
		gpu.Fatal:    {46, 48, 62, 64, 79, 95, 110, 119, 120, 140, 143, 158},
		gpu.Critical: {63, 74, 94, 109, 136, 144, 145, 146, 147, 148, 149, 150, 155, 156},
		gpu.Warning:  {8, 32, 39, 44, 66, 68, 92, 121, 126, 154, 157, 171, 172},
		gpu.Harmless: {13, 31, 43, 45, 69, 137},
	} {
		for _, number := range numbers {
			if got := rules.Judge(gpu.SignalXID, number).Severity; got != severity {
				t.Errorf("XID %d is %v, want %v", number, got, severity)
			}
		}
	}
	if got := rules.Judge(gpu.SignalXID, 79).Remedy; got != gpu.Reboot {
		t.Errorf("XID 79 wants a %v", got)
	}
	if got := rules.Judge(gpu.SignalXID, 94).Remedy; got != gpu.Restart {
		t.Errorf("XID 94 wants a %v", got)
	}
}

// formed checks that Meaning and Help can be parts of a sentence.
func formed(t *testing.T, j gpu.Judgement) {
	t.Helper()
	for _, text := range []string{j.Meaning, j.Help} {
		if text == "" || strings.HasSuffix(text, ".") || strings.Contains(text, "|") || strings.TrimSpace(text) != text {
			t.Errorf("%+v: %q is no sentence without a full stop", j, text)
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	rules := gpu.Rules{XIDs: map[int]gpu.Judgement{
		13: {Severity: gpu.Critical, Remedy: gpu.Reset, Meaning: "m", Help: "h"}, 500: {Severity: gpu.Fatal, Remedy: gpu.Reboot, Meaning: "m", Help: "h"},
	}}
	if got := rules.Judge(gpu.SignalXID, 13); got.Severity != gpu.Critical {
		t.Errorf("XID 13: %+v", got)
	}
	if got := rules.Judge(gpu.SignalXID, 31); got != (gpu.Rules{}).Judge(gpu.SignalXID, 31) {
		t.Errorf("XID 31, without an override: %+v", got)
	}
	table := rules.Table()
	at := func(number int) gpu.XID {
		i, _ := slices.BinarySearchFunc(table, number, func(x gpu.XID, n int) int { return cmp.Compare(x.Number, n) })
		return table[i]
	}
	if at(13).Severity != gpu.Critical || at(500).Severity != gpu.Fatal || len(table) != len(gpu.Rules{}.Table())+1 {
		t.Errorf("the table has %d rows, 13 is %+v, 500 is %+v", len(table), at(13), at(500))
	}
	table[0] = gpu.XID{}
	if again := rules.Table(); again[0].Number == 0 {
		t.Error("who changes the table changes it for all")
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	var rules gpu.Rules
	if got := rules.Judge(gpu.SignalXID, 4711); got.Severity != gpu.Critical || got.Remedy != gpu.Wait {
		t.Errorf("an unknown XID: %+v", got)
	}
	if got := rules.Judge("cosmic", 0); got.Severity != gpu.Warning {
		t.Errorf("an unknown signal: %+v", got)
	}
}

func TestSeverityText(t *testing.T) {
	t.Parallel()
	for s := gpu.Harmless; s <= gpu.Fatal; s++ {
		parsed, err := gpu.ParseSeverity(s.String())
		var read gpu.Severity
		text, _ := s.MarshalText()
		if err != nil || parsed != s || read.UnmarshalText(text) != nil || read != s {
			t.Errorf("%v: parsed %v, %v, read %v", s, parsed, err, read)
		}
	}
	for r := gpu.Wait; r <= gpu.Replace; r++ {
		parsed, err := gpu.ParseRemedy(r.String())
		var read gpu.Remedy
		text, _ := r.MarshalText()
		if err != nil || parsed != r || read.UnmarshalText(text) != nil || read != r {
			t.Errorf("%v: parsed %v, %v, read %v", r, parsed, err, read)
		}
	}
	if _, err := gpu.ParseSeverity("fatal"); err == nil || err.Error() != `severity "fatal": must be one of Harmless, Warning, Critical, Fatal` {
		t.Errorf("error: %v", err)
	}
	if _, err := gpu.ParseRemedy(""); err == nil || err.Error() != `remedy "": must be one of Wait, Restart, Reset, Reboot, Replace` {
		t.Errorf("error: %v", err)
	}
	if got := gpu.Severity(7).String() + gpu.Remedy(-1).String(); got != "severity-7remedy--1" {
		t.Errorf("out of range: %s", got)
	}
}
