package binaries

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// modules writes a module that pins a small program at v1.2.3 and returns its parent folder. Nothing is downloaded.
func modules(t *testing.T) (folder string, family Family) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range map[string]string{
		"tiny/go.mod": "module test/tiny\n\ngo 1.26.0\n\nrequire example.invalid/tool v1.2.3\n\nreplace example.invalid/tool => ./tool\n",
		"tiny/go.sum": "",
		"tiny/pin.go": "//go:build tools\n\npackage tiny\n\nimport _ \"example.invalid/tool\"\n",
		// The tool prints its stamp.
		"tiny/tool/go.mod":  "module example.invalid/tool\n\ngo 1.26.0\n",
		"tiny/tool/main.go": "package main\n\nvar version = \"unset\"\n\nfunc main() { println(version) }\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder, Family{
		Name: "tiny", Module: "example.invalid/tool", Programs: []Program{{"tool", "example.invalid/tool"}},
		Stamp: func(version string) map[string]string { return map[string]string{"main.version": version} },
	}
}

func ensure(t *testing.T, b Builder, family Family) (folder string) {
	t.Helper()
	p, err := family.pin(t.Context(), b.Modules)
	if err != nil {
		t.Fatal(err)
	}
	folder, err = b.ensure(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestProgramsAreBuiltOncePerVersion(t *testing.T) {
	folder, family := modules(t)
	var progress bytes.Buffer
	b := Builder{Modules: folder, Cache: t.TempDir(), Progress: &progress}
	first := ensure(t, b, family)
	if !strings.Contains(first, "tiny-v1.2.3-") {
		t.Errorf("%s does not name the version", first)
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(first, "tool")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(output)) != "v1.2.3" {
		t.Errorf("the program says %q, %v; want its version", output, err)
	}
	said := progress.Len()
	if said == 0 {
		t.Error("nothing was said about the build")
	}
	if again := ensure(t, b, family); again != first || progress.Len() != said {
		t.Errorf("built again: %s, %q", again, progress.String()[said:])
	}
	appendTo(t, filepath.Join(folder, "tiny/go.mod"), "\n// changed\n")
	if changed := ensure(t, b, family); changed == first {
		t.Error("a changed go.mod gave the same programs")
	}
}

func TestInterruptedBuildLeavesNothingThatCounts(t *testing.T) {
	folder, family := modules(t)
	b := Builder{Modules: folder, Cache: t.TempDir(), Progress: &bytes.Buffer{}}
	p, err := family.pin(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := b.ensure(ctx, p); err == nil {
		t.Fatal("the build was not interrupted")
	}
	if built(filepath.Join(b.Cache, "bin", p.key)) {
		t.Error("an interrupted build counts as built")
	}
	if _, err := os.Stat(filepath.Join(ensure(t, b, family), "tool")); err != nil {
		t.Errorf("the next build: %v", err)
	}
}

func TestBrokenSourceSaysWhy(t *testing.T) {
	folder, family := modules(t)
	appendTo(t, filepath.Join(folder, "tiny/tool/main.go"), "broken\n")
	b := Builder{Modules: folder, Cache: t.TempDir(), Progress: &bytes.Buffer{}}
	p, err := family.pin(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.ensure(t.Context(), p); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("got %v, want the compiler's complaint", err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // a failed write fails the test
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
