package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
)

func TestSemver(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"580.65.06":             "580.65.6",
		"535.104.05":            "535.104.5",
		"550.54":                "550.54.0",
		"9.0":                   "9.0.0",
		"13":                    "13.0.0",
		"000.00.00":             "0.0.0",
		"31.0.15.3667":          "31.0.15",
		"":                      "",
		"580.65.":               "",
		"580..06":               "",
		"580.65.06-beta":        "",
		"-1.0":                  "",
		" 1.0":                  "",
		"N/A":                   "",
		strings.Repeat("9", 61): "",
		strings.Repeat("9", 60): strings.Repeat("9", 60) + ".0.0",
	}
	for text, want := range tests {
		got, ok := semver(text)
		if ok != (want != "") || ok && got != want {
			t.Errorf("semver(%q) = %q, %v, want %q", text, got, ok, want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"NVIDIA H100 80GB HBM3":        "NVIDIA H100 80GB HBM3",
		strings.Repeat("x", 64):        strings.Repeat("x", 64),
		strings.Repeat("x", 65):        strings.Repeat("x", 64),
		strings.Repeat("x", 63) + "é":  strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "é":  strings.Repeat("x", 62) + "é",
		strings.Repeat("日本", 11):       strings.Repeat("日本", 10) + "日",
		"bad \xff byte":                "bad ? byte",
		strings.Repeat("\xc3", 70):     "?",
		strings.Repeat("x", 61) + "🦀x": strings.Repeat("x", 61),
	}
	for text, want := range tests {
		if got := cut(text); got != want {
			t.Errorf("cut(%q) = %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		got := cut(text)
		if len(got) > 64 || !utf8.ValidString(got) || !strings.HasPrefix(text, got) {
			t.Fatalf("cut(%q) = %q", text, got)
		}
		if len(text) > 64 && len(got) <= 60 {
			t.Fatalf("cut(%q) lost more than one character: %q", text, got)
		}
	})
}

func TestLinks(t *testing.T) {
	t.Parallel()
	g := gpu.GPU{Links: []gpu.Link{
		gpu.LinkSelf, gpu.LinkSystem, gpu.LinkNode, gpu.LinkHostBridge, gpu.LinkMultiSwitch, gpu.LinkSwitch,
		gpu.NVLinks(1), gpu.NVLinks(9), gpu.NVLinks(10), gpu.NVLinks(17), gpu.NVLinks(18), gpu.LinkUnknown,
	}}
	if got, want := EncodeLinks(g, 14), "-snhxp19AHI???"; got != want {
		t.Errorf("links %q, want %q: a GPU that was never read keeps its column", got, want)
	}
	if got := EncodeLinks(gpu.GPU{}, 8); got != "" {
		t.Errorf("links of a GPU of which none are known: %q", got)
	}
	if got := EncodeLinks(gpu.GPU{Links: []gpu.Link{-3, gpu.LinkNVLink, 99}}, 3); got != "???" {
		t.Errorf("relations that do not exist: %q", got)
	}
	for _, wrong := range []string{"- ", "-z", "-J", "-0", "é"} {
		if links, err := DecodeLinks(wrong); err == nil {
			t.Errorf("DecodeLinks(%q) = %v", wrong, links)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		relation := rapid.SampledFrom([]gpu.Link{
			gpu.LinkUnknown, gpu.LinkSystem, gpu.LinkNode, gpu.LinkHostBridge, gpu.LinkMultiSwitch, gpu.LinkSwitch, gpu.LinkSelf,
			gpu.NVLinks(1), gpu.NVLinks(4), gpu.NVLinks(12), gpu.NVLinks(17), gpu.NVLinks(18),
		})
		links := rapid.SliceOfN(relation, 1, 64).Draw(t, "links")
		back, err := DecodeLinks(EncodeLinks(gpu.GPU{Links: links}, len(links)))
		if diff := cmp.Diff(links, back); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

// TestShareOfSmallMemory covers sizes that no real GPU has: too little memory for the usual steps.
func TestShareOfSmallMemory(t *testing.T) {
	t.Parallel()
	tests := map[uint64]string{0: "0", gi: "1Gi", 2*gi - 1: "2147483647", 2 * gi: "1Gi", 24 * gi: "2Gi", 80 * gi: "8Gi"}
	for total, want := range tests {
		c := capacities{}
		c.share(total, 10)
		policy := c[Memory].RequestPolicy
		if got := policy.Default.String(); got != want {
			t.Errorf("%d bytes in 10 shares: %s each by default, want %s", total, got, want)
		}
		if (policy.ValidRange != nil) != (total >= 2*gi) {
			t.Errorf("%d bytes: steps %v", total, policy.ValidRange)
		}
	}
}
