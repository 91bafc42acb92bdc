package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxSize is the limit of the installed program in bytes.
const maxSize = 80 << 20

// TestInstall runs make install into a temporary folder and checks that the program and the plugin run.
func TestInstall(t *testing.T) {
	root := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "install", "PREFIX=/opt/tessera", "DESTDIR="+root)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	folder := filepath.Join(root, "opt/tessera/bin")
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%s has %v, %v", folder, entries, err)
	}
	if target, err := os.Readlink(filepath.Join(folder, "kubectl-tessera")); err != nil || target != "tessera" {
		t.Errorf("kubectl-tessera links to %q, %v: the link must be relative", target, err)
	}
	// The program without symbols and debugging information has two thirds of this size, and at most 55 MB.
	if info, err := os.Stat(filepath.Join(folder, "tessera")); err != nil || info.Size() > maxSize {
		t.Errorf("the program has %d bytes, %v: if a dependency uses text/template, the linker keeps every exported method", info.Size(), err)
	}
	for program, want := range map[string]string{"tessera": "  tessera version [flags]", "kubectl-tessera": "  kubectl tessera version [flags]"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(folder, program), "version", "--help").CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s version --help: %v\n%s", program, err, out)
		}
	}
}
