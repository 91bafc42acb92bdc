package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// TestBadDriverRoots: a driver image that lacks a library, or whose libraries are for another C library, ends in a message in status.agent and in the
// claim's Event on which a user can act. The installer shows the message in the node's phase.
func TestBadDriverRoots(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage        func(n *node)
		status, event string
		reason        string
	}{
		"no libcuda": {func(n *node) { n.removeLibraries("libcuda.so*") }, "libcuda.so.", "libcuda.so.", "PrepareFailed"},
		"no NVML":    {func(n *node) { n.removeLibraries("libnvidia-ml.so*") }, "libnvidia-ml.so.1", "", ""},
		"musl":       {(*node).useMusl, "the driver's libraries are for musl; use a driver image of a distribution with glibc", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "h100x2")
			test.damage(n)
			i := newInstaller(n)
			i.create()
			_, k := n.run()
			i.eventually("the agent reports the cause", func(ctx context.Context) error {
				s, err := i.agent(ctx)
				if err != nil || !strings.Contains(s.Message, test.status) || s.Ready && s.DriverVersion != "" {
					return fmt.Errorf("ready %t, driver %q, message %q, %w", s.Ready, s.DriverVersion, s.Message, err)
				}
				return nil
			})
			if test.event == "" {
				return // without NVML no device is published
			}
			claim := n.claim("whole", []gpu.Device{n.whole(0)}, onNode(n))
			if _, err := k.prepare(claim); err == nil {
				t.Error("the claim was prepared")
			}
			if message := n.warns(claim, test.reason); !strings.Contains(message, test.event) {
				t.Errorf("the Event is %q, want %q in it", message, test.event)
			}
		})
	}
}

// removeLibraries removes the driver's libraries that match the pattern.
func (n *node) removeLibraries(pattern string) {
	n.t.Helper()
	paths := n.files(filepath.Dir(fakegpu.Library(n.machine())), pattern)
	if len(paths) == 0 {
		n.t.Fatalf("the driver has no %s", pattern)
	}
	for _, path := range paths {
		n.must(os.Remove(path))
	}
}

// useMusl replaces NVML by a library that is linked with musl.
func (n *node) useMusl() {
	n.t.Helper()
	library, err := filepath.EvalSymlinks(fakegpu.Library(n.machine()))
	n.must(err)
	stub, source := filepath.Join(n.dir, "libc.musl-x86_64.so.1"), filepath.Join(n.dir, "musl.c")
	n.must(os.WriteFile(source, []byte("void later(void) {}\n"), 0o600))
	user := filepath.Join(n.dir, "user.c")
	n.must(os.WriteFile(user, []byte("void later(void);\nvoid nvmlInitWithFlags(void) { later(); }\n"), 0o600))
	n.must(os.Remove(library))
	for _, args := range [][]string{
		{"-Wl,-soname," + filepath.Base(stub), "-o", stub, source}, {"-o", library, user, stub},
	} {
		if out, err := exec.CommandContext(n.t.Context(), "gcc", append([]string{"-shared", "-fPIC", "-nostdlib"}, args...)...).CombinedOutput(); err != nil {
			n.must(errors.Join(err, errors.New(string(out))))
		}
	}
	n.must(os.Remove(stub))
}
