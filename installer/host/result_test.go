package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	tests := map[string]struct {
		result Result
		want   Result
	}{
		"done":                        {Outcome("unload", true, "unloaded nvidia", nil), Result{Verb: "unload", Done: true, Changed: true, Message: "unloaded nvidia"}},
		"a reason":                    {Outcome("unload", false, "", fmt.Errorf("try: %w", Fail("ModuleInUse", "used by %s", "x"))), Result{Verb: "unload", Reason: "ModuleInUse", Message: "try: used by x"}},
		"any other error":             {Outcome("unload", false, "", errors.New("no such luck")), Result{Verb: "unload", Reason: "Error", Message: "no such luck"}},
		"a reason with what is below": {Outcome("unload", false, "", &Failure{Reason: "R", Message: "m", Cause: os.ErrPermission}), Result{Verb: "unload", Reason: "R", Message: "m: permission denied"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := filepath.Join(t.TempDir(), "log")
			if err := test.result.Report(&out, log); err != nil {
				t.Fatal(err)
			}
			written, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range [][]byte{out.Bytes(), written} {
				var got Result
				if err := json.Unmarshal(text, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestReportFitsKubeletsLimit(t *testing.T) {
	// Quotes and umlauts take more bytes in JSON than in the message, and half of a letter would be no JSON at all.
	for _, letter := range []string{"x", `"`, "ä", "\x01"} {
		result := Result{Verb: "unload", Reason: "ModuleInUse", Message: strings.Repeat(letter, 9000)}
		text, err := result.text()
		if err != nil {
			t.Fatal(err)
		}
		var got Result
		if err := json.Unmarshal(text, &got); err != nil || len(text) > limit || len(text) < limit/8 {
			t.Errorf("%q: %d bytes, error %v", letter, len(text), err)
		}
		if got.Reason != "ModuleInUse" || !strings.HasSuffix(got.Message, "…") {
			t.Errorf("%q: reason %q, message ends with %q", letter, got.Reason, got.Message[max(0, len(got.Message)-8):])
		}
	}
}

func TestReportWithoutTerminationLog(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "missing", "log")} {
		var out bytes.Buffer
		if err := (Result{Verb: "unload"}).Report(&out, path); err != nil || out.Len() == 0 {
			t.Errorf("%q: printed %d bytes, error %v", path, out.Len(), err)
		}
	}
}

func TestRoots(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/etc/real", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	r := Roots{Host: root}
	seen, err := r.See("/link/file")
	if err != nil || seen != filepath.Join(root, "etc/real/file") {
		t.Errorf("See followed an absolute link to %q, error %v: it must stay below the host's root", seen, err)
	}
	if got := r.OnHost(seen); got != "/etc/real/file" {
		t.Errorf("OnHost: got %q", got)
	}
	if !Below("/run/a/b", "/run/a/") || Below("/run/ab", "/run/a") || !Below("/x", "/") {
		t.Error("Below: a prefix is not a folder")
	}
}
