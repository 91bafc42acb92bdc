package nvml

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

var update = flag.Bool("update", false, "rewrite symbols.h from the pinned go-nvml")

// A function that go-nvml calls and that forward.S lacks is resolved by the dynamic linker, which ends the process if
// the driver lacks it.
func TestEverySymbolIsForwarded(t *testing.T) {
	want := calledByGoNVML(t)
	text, err := os.ReadFile("symbols.h")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(text), "FORWARD(")
	if *update {
		lines := make([]string, len(want))
		for i, name := range want {
			lines[i] = "FORWARD(" + name + ")\n"
		}
		if err := os.WriteFile("symbols.h", []byte(comment+strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, match := range regexp.MustCompile(`(?m)^FORWARD\((\w+)\)$`).FindAllStringSubmatch(string(text), -1) {
		got = append(got, match[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("symbols.h (-want +got), write it with -update:\n%s", diff)
	}
}

// calledByGoNVML returns the names of the C functions that go-nvml's sources call, sorted.
func calledByGoNVML(t *testing.T) []string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml/pkg/nvml").Output()
	if err != nil {
		t.Fatalf("find the sources of go-nvml: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "nvml.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`\bC\.(nvml\w+)\(`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// compile builds an NVML library of one version with almost no functions.
func compile(t *testing.T, path, version string) {
	t.Helper()
	source := path + ".c"
	code := fmt.Sprintf(`
		#include <string.h>
		int nvmlInitWithFlags(unsigned flags) { return %q[0] == '-' ? 9 : 0; }
		int nvmlShutdown(void) { return %[1]q[0] == '-' ? 1 : 0; }
		const char *nvmlErrorString(int code) { return "text of the library"; }
		int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, %[1]q, size); return 0; }`, version)
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", path, source).CombinedOutput()
	if err != nil {
		t.Fatalf("compile %s (gcc is needed): %v\n%s", source, err, out)
	}
}

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	version := func() string {
		t.Helper()
		library, err := connect(path)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		defer disconnect(library)
		version, ret := library.SystemGetDriverVersion()
		if err := newCallError("nvmlSystemGetDriverVersion", ret); err != nil {
			t.Fatal(err)
		}
		if _, ret := library.DeviceGetCount(); !errors.Is(newCallError("nvmlDeviceGetCount", ret), gpu.ErrUnsupported) {
			t.Errorf("a function that the library lacks: got %v, want unsupported", ret)
		}
		if _, err := connect(path); err == nil {
			t.Error("a second connection: no error")
		}
		return version
	}

	compile(t, path, "535.1")
	if got := version(); got != "535.1" {
		t.Errorf("version: got %q, want 535.1", got)
	}

	t.Run("a library that cannot initialize is let go", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		compile(t, path, "-")
		_, err := connect(path)
		if !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(fmt.Sprint(err), "nvmlInitWithFlags: text of the library (9)") {
			t.Errorf("connect: got %v, want no driver in the words of the library", err)
		}
	})

	t.Run("another driver at the same path is really spoken to", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		compile(t, path, "580.2")
		if got := version(); got != "580.2" {
			t.Errorf("version: got %q, want 580.2", got)
		}
	})

	t.Run("no library", func(t *testing.T) {
		if _, err := connect(filepath.Join(dir, "nowhere")); !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("connect: got %v, want no driver", err)
		}
	})
}

// The driver's libraries of a container whose image has another C library cannot be loaded into the agent; the error is one on which an administrator
// can act. Images of drivers for Alpine and of distributions that are newer than the agent's image have such libraries.
func TestLibraryOfAnotherLibc(t *testing.T) {
	dir := t.TempDir()
	build := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "gcc", append([]string{"-shared", "-fPIC", "-nostdlib"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
	}
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	libc := file("libc.c", "void later(void) {}\n")
	driver := file("driver.c", "void later(void);\nint nvmlInitWithFlags(unsigned f) { later(); return 0; }\n")
	for name, test := range map[string]struct{ soname, versions, want string }{
		"musl":          {soname: "libc.musl-x86_64.so.1", want: "libc.musl-x86_64.so.1: cannot open shared object file: No such file or directory: the driver's libraries are for musl"},
		"a newer glibc": {soname: "libc.so.6", versions: "GLIBC_2.999 { global: later; };\n", want: "version `GLIBC_2.999' not found"},
	} {
		t.Run(name, func(t *testing.T) {
			stub, library := filepath.Join(t.TempDir(), test.soname), filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
			args := []string{"-Wl,-soname," + test.soname, "-o", stub, libc}
			if test.versions != "" {
				args = append(args, "-Wl,--version-script="+file("versions", test.versions))
			}
			build(args...)
			build("-o", library, driver, stub)
			_, err := connect(library)
			if !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "use a driver image") &&
				!strings.Contains(err.Error(), "use the driver image") {
				t.Errorf("connect: %v, want %q with what to do", err, test.want)
			}
		})
	}
}
