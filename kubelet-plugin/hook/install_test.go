package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugin", "bin")
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "source")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := script("one"), script("two")

	// Several agents install at the same time during an upgrade.
	var installs sync.WaitGroup
	for range 8 {
		for _, src := range []string{one, two} {
			installs.Go(func() {
				if _, err := Install(nil, src, dir); err != nil {
					t.Error(err)
				}
			})
		}
	}
	installs.Wait()
	first, err := Install(nil, one, dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Install(nil, two, dir)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Fatalf("two programs have one path %s: specs of the first would run the second", first)
	}
	for path, want := range map[string]string{first: "one", second: "two"} {
		out, err := exec.CommandContext(t.Context(), path).Output()
		if got := strings.TrimSpace(string(out)); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	if files := tree(t, dir); len(files) != 5 {
		t.Errorf("after all installs: got %d files and folders, want the two programs in their folders: %v", len(files), files)
	}
}

func TestInstallRepairs(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := os.WriteFile(src, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := Install(nil, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("prog"), 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := Install(nil, src, dir); err != nil || again != path {
		t.Errorf("Install: got %s, %v, want %s", again, err, path)
	}
	if text, err := os.ReadFile(path); string(text) != "program" || err != nil {
		t.Errorf("the program: got %q, %v, want it whole", text, err)
	}
}

func TestInstallOfNothing(t *testing.T) {
	if _, err := Install(nil, filepath.Join(t.TempDir(), "none"), t.TempDir()); err == nil {
		t.Error("Install: got no error, want one")
	}
}

// Containers could not start with hooks on such a file system.
func TestInstallWithoutExecution(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", unix.MS_NOEXEC)
	src := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(src, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(nil, src, dir); err == nil || !strings.Contains(err.Error(), "noexec") {
		t.Errorf("got %v, want an error that names noexec", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}

// Former versions are removed, except those that specs name. Anything else in the folder is kept.
func TestRemoveUnused(t *testing.T) {
	dir := t.TempDir()
	var programs []string
	for _, text := range []string{"first", "second", "third"} {
		src := filepath.Join(t.TempDir(), "source")
		if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		program, err := Install(nil, src, dir)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	for _, other := range []string{"0123456789abcdef.d", "other", "0123456789ABCDEF"} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveUnused(nil, dir, programs[1:]); err != nil {
		t.Fatal(err)
	}
	for i, program := range programs {
		if _, err := os.Stat(program); (err == nil) != (i > 0) {
			t.Errorf("program %d: %v", i, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v, want two programs and three others", entries, err)
	}
}
