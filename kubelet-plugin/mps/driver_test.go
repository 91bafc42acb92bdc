package mps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/tests/driver"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// TestNVIDIAsPrograms runs nvidia-cuda-mps-control of NVIDIA's drivers as Debian packages them: it starts, has the limits, refuses wrong ones, starts no server
// without a GPU, ends, and starts over what a killed one left.
func TestNVIDIAsPrograms(t *testing.T) {
	driver.Each(t, func(t *testing.T, root driver.Root) {
		superviseProgram(t, Program{
			Path:      filepath.Join(root.Path, "usr/bin/nvidia-cuda-mps-control"),
			Libraries: []Library{{Name: "libcuda.so.1", Target: root.Library("libcuda")}},
		})
	})
}

func superviseProgram(t *testing.T, program Program) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder, err := os.MkdirTemp("", "mps") // the path of a socket is limited in length
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	lock, err := os.Create(filepath.Join(folder, lockName))
	must(err)
	defer lock.Close()
	c := configuration{Name: "mps-gpu", GPU: "gpu", Visible: "GPU-1", ActiveThreadPercentage: 40, PinnedMemoryBytes: 3 << 30,
		Namespaces: []prepare.Namespace{{Name: "c_1"}}}
	begin := func() legacy {
		d, err := start(t.Context(), program, folder, c, 0, lock, longTimeouts())
		must(err)
		must(d.ready(t.Context()))
		return legacy{d}
	}
	d := begin()
	must(d.cmd.Process.Signal(syscall.SIGKILL))
	<-d.done
	if _, err := os.Lstat(filepath.Join(folder, pipeName, "control")); err != nil {
		t.Errorf("a killed daemon leaves its socket: %v", err)
	}
	d = begin()
	if len(d.cmd.Args) > 2 || d.protocol != version2 {
		t.Errorf("started as %q with MPS version %d, which neither program has", d.cmd.Args, d.protocol)
	}
	must(d.change(t.Context(), configuration{}, c))
	for _, refused := range []limit{
		{what: "active_thread_percentage", value: "150", shown: "150.0"},
		{what: "device_pinned_mem_limit", device: "x", value: "1G", shown: "1G"},
	} {
		if err := d.setLimit(t.Context(), refused, ""); err == nil {
			t.Errorf("%v was set", refused)
		}
	}
	if err := d.active(t.Context()); !errors.Is(err, errNoServer) {
		t.Errorf("the server: got %v, want %v", err, errNoServer)
	}
	if _, err := d.command(t.Context(), "start_server -uid 0"); err != nil {
		t.Error(err)
	}
	eventually(t, "the driver's server is found, and ends without a GPU", func() bool {
		d.output.mu.Lock()
		defer d.output.mu.Unlock()
		return strings.Contains(string(d.output.kept), "no CUDA-capable device is detected")
	})
	must(d.quit(t.Context()))
}
