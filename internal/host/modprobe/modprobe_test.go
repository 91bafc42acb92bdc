package modprobe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A driver container has modprobe and the modules in its own root, an installation of the host in the host's.
func TestLoadTriesTheRootsInOrder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot(2)")
	}
	empty, refusing, loading := t.TempDir(), rootWith(t, "1"), rootWith(t, `close(creat("/loaded", 0600)), strcmp(v[1], "nvidia-uvm")`)
	if err := Load(t.Context(), "nvidia-uvm", empty, refusing, loading); err != nil {
		t.Errorf("the third root has the module: %v", err)
	}
	if _, err := os.Stat(filepath.Join(loading, "loaded")); err != nil {
		t.Errorf("the program of the third root did not run in it: %v", err)
	}
	err := Load(t.Context(), "nvidia-uvm", empty, refusing)
	if !errors.Is(err, ErrNoProgram) || !strings.Contains(err.Error(), "modprobe nvidia-uvm in "+refusing+": exit status 1") {
		t.Errorf("no root has the module: %v, want the reason of each root", err)
	}
	if err := Load(t.Context(), "no-such-module-of-any-kernel", "/"); err == nil {
		t.Error("a module that does not exist was loaded")
	}
}

// On Debian 12, /sbin is a link to usr/sbin, and modprobe in it a link to /bin/kmod.
func TestFindFollowsLinksOfTheRoot(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"usr/sbin", "bin"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink("/usr/sbin", filepath.Join(root, "sbin")), os.Symlink("/bin/kmod-of-the-root", filepath.Join(root, "usr/sbin/modprobe")),
		os.WriteFile(filepath.Join(root, "bin/kmod-of-the-root"), nil, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	if program, err := find(root); err != nil || program != "/sbin/modprobe" {
		t.Errorf("found %q, %v", program, err)
	}
}

// rootWith returns a root whose modprobe is a static program with the expression as exit status.
func rootWith(t *testing.T, expression string) string {
	t.Helper()
	root := t.TempDir()
	source := "#include <fcntl.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n" +
		"int main(int c, char **v) { return " + expression + "; }\n"
	if err := os.Mkdir(filepath.Join(root, "sbin"), 0o755); err != nil {
		t.Fatal(err)
	}
	compiler := exec.CommandContext(t.Context(), "gcc", "-static", "-xc", "-", "-o", filepath.Join(root, "sbin/modprobe"))
	compiler.Stdin = strings.NewReader(source)
	if out, err := compiler.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return root
}
