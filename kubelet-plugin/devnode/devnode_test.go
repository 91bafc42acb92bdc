package devnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
)

// host is a kernel with a driver, and an empty /dev.
type host struct {
	t    *testing.T
	top  string
	dev  string
	load error
	// loads are the modules that were loaded.
	loads []string
}

const listed = "Character devices:\n120 nvidia\n120 nvidia-modeset\n120 nvidiactl\n122 nvidia-caps\n"

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	h := &host{t: t, top: t.TempDir()}
	h.dev = filepath.Join(h.top, "dev")
	h.write("devices", listed)
	h.write("driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\nRegistryDwords: \"\"\n")
	h.write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA\nDevice Minor: \t 1\n")
	h.write("driver/nvidia/gpus/0000:86:00.0/information", "Model: \t\t NVIDIA\nDevice Minor: \t 0\n")
	h.write("driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\n")
	return h
}

func (h *host) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.top, "proc", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) maker() *Maker {
	return New(Config{
		Roots: driverroot.Roots{Host: h.top, Proc: filepath.Join(h.top, "proc")}, Dev: h.dev,
		Load: func(_ context.Context, module string) error {
			h.loads = append(h.loads, module)
			if h.load == nil {
				h.write("devices", listed+"121 "+module+"\n")
			}
			return h.load
		},
	})
}

// nodes returns the nodes below dev with their numbers, owner and mode.
func (h *host) nodes() []string {
	h.t.Helper()
	var nodes []string
	for _, pattern := range []string{"*", "*/*"} {
		paths, err := filepath.Glob(filepath.Join(h.dev, pattern))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, path := range paths {
			var stat unix.Stat_t
			if err := unix.Lstat(path, &stat); err != nil {
				h.t.Fatal(err)
			}
			if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
				nodes = append(nodes, fmt.Sprintf("%s %d:%d %d:%d %o", strings.TrimPrefix(path, h.dev+"/"),
					unix.Major(stat.Rdev), unix.Minor(stat.Rdev), stat.Uid, stat.Gid, stat.Mode&^unix.S_IFMT))
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// A driver container loads the modules and makes no node (NVIDIA's nvidia-driver: modprobe, --no-nvidia-modprobe).
func TestEnsureMakesNodesAndLoadsUVM(t *testing.T) {
	h := newHost(t)
	maker := h.maker()
	for range 2 { // the second time nothing is missing
		if err := maker.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"nvidia-caps/nvidia-cap1 122:1 0:44 660", "nvidia-caps/nvidia-cap2 122:2 0:44 660",
		"nvidia-modeset 120:254 0:44 660", "nvidia-uvm 121:0 0:44 660", "nvidia-uvm-tools 121:1 0:44 660",
		"nvidia0 120:0 0:44 660", "nvidia1 120:1 0:44 660", "nvidiactl 120:255 0:44 660",
	}
	if diff := cmp.Diff(want, h.nodes()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"nvidia-uvm"}, h.loads); diff != "" {
		t.Errorf("modules that were loaded (-want +got):\n%s", diff)
	}
}

// The major number of nvidia-uvm is dynamic: after the module was loaded again, a node may have the number of another driver.
func TestEnsureReplacesWrongNodesAndKeepsRightOnes(t *testing.T) {
	h := newHost(t)
	h.write("devices", listed+"121 nvidia-uvm\n")
	if err := os.Mkdir(h.dev, 0o755); err != nil {
		t.Fatal(err)
	}
	node := func(name string, major, minor uint32) {
		if err := unix.Mknod(filepath.Join(h.dev, name), unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
			t.Fatal(err)
		}
	}
	node("nvidia-uvm", 99, 0)
	node("nvidiactl", 120, 255)
	if err := os.WriteFile(filepath.Join(h.dev, "nvidia0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.maker().Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nvidia-uvm 121:0 0:44 660", "nvidia0 120:0 0:44 660", "nvidiactl 120:255 0:0 600"} {
		if !slices.Contains(h.nodes(), want) {
			t.Errorf("nodes %q, want %s", h.nodes(), want)
		}
	}
	if len(h.loads) > 0 {
		t.Errorf("loaded %v, which is loaded already", h.loads)
	}
}

func TestEnsureWithoutDriver(t *testing.T) {
	h := newHost(t)
	h.write("devices", "Character devices:\n  1 mem\n")
	if err := h.maker().Ensure(t.Context()); err != nil || len(h.nodes()) > 0 || len(h.loads) > 0 {
		t.Errorf("without a driver: %v, nodes %v, modules %v, want none", err, h.nodes(), h.loads)
	}
}

func TestEnsureReports(t *testing.T) {
	refusal := errors.New("no modprobe")
	tests := map[string]struct {
		damage func(*host)
		want   string
	}{
		"a module that cannot be loaded": {func(h *host) { h.load = refusal }, "load the kernel module nvidia-uvm, without which no CUDA program starts: no modprobe"},
		"no list of devices":             {func(h *host) { h.remove("devices") }, "read the kernel's devices"},
		"no folder for nodes":            {func(h *host) { h.dev = filepath.Join(h.top, "proc/devices/dev") }, "create device node /dev/nvidiactl"},
		"MIG minors that are damaged":    {func(h *host) { h.write("driver/nvidia-caps/mig-minors", "monitor two\n") }, "read the MIG minors"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.damage(h)
			if err := h.maker().Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Ensure: %v, want %q", err, test.want)
			}
		})
	}
	h := newHost(t)
	loadsNothing := New(Config{Roots: h.maker().config.Roots, Dev: h.dev, Load: func(context.Context, string) error { return nil }})
	if err := loadsNothing.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "nvidia-uvm is not among the kernel's character devices after modprobe") {
		t.Errorf("a module without effect: %v", err)
	}
}

func (h *host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.top, "proc", path)); err != nil {
		h.t.Fatal(err)
	}
}
