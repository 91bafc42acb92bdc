package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// TestDriverRootIsFoundAtRunTime runs one agent while the driver appears in a container's root, disappears, and appears
// in the host's root. No root is configured.
func TestDriverRootIsFoundAtRunTime(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	host := filepath.Join(n.dir, "h")
	n.must(os.WriteFile(n.config(), fmt.Appendf(nil, "apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: %s, proc: %s, sys: %s}\n",
		host, fakegpu.ProcRoot(n.machine()), fakegpu.SysRoot(n.machine())), 0o600))
	n.bind(n.dir, filepath.Join(host, n.dir)) // folder of the hook
	for _, root := range []string{host, fakegpu.DevRoot(n.machine())} {
		n.must(os.MkdirAll(filepath.Join(root, "dev"), 0o755))
		n.must(unix.Mknod(filepath.Join(root, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))) // each is the host's /dev in turn
	}
	a, k := n.run("FAKE_NVML_DEV=" + filepath.Join(host, "dev"))
	a.waitReady()
	n.publishes("no device", devices(0))

	const container, libraries = "/run/nvidia/driver", "/usr/lib/x86_64-linux-gnu/libcuda.so."
	for _, place := range []struct {
		where, libraries string
		folders          [][2]string // folder of the driver, and its path on the host
	}{
		{"container", container + libraries, [][2]string{{"", container}}},
		{"host", `"` + libraries, [][2]string{{"usr", "usr"}, {"lib", "lib"}, {"dev", "dev"}}},
	} {
		var leave []func()
		come := func() {
			for _, folder := range place.folders {
				leave = append(leave, n.bind(filepath.Join(fakegpu.DriverRoot(n.machine()), folder[0]), filepath.Join(host, folder[1])))
			}
		}
		gone := func() {
			for _, leave := range leave {
				leave()
			}
			a.metric("tessera_gpus 0")
		}
		n.foundSoon(k, place.where, place.libraries, come, gone)
		gone()
	}
}

// bind mounts the folder at another path until the test ends or leave is called.
func (n *node) bind(from, to string) (leave func()) {
	n.t.Helper()
	n.must(os.MkdirAll(to, 0o755))
	n.must(unix.Mount(from, to, "", unix.MS_BIND, ""))
	gone := false
	leave = func() {
		if !gone {
			gone = true
			n.must(unix.Unmount(to, unix.MNT_DETACH)) // programs of the driver may still run
		}
	}
	n.t.Cleanup(leave)
	return leave
}

// foundSoon checks that a claim of a GPU can be prepared soon after the driver appears, with libraries at the host
// path.
func (n *node) foundSoon(k *kubelet, where, libraries string, come, gone func()) {
	n.t.Helper()
	what := "the driver of the " + where
	claim := n.claim("in-"+where, []gpu.Device{n.whole(0)})
	n.promptly("to find "+what, func() {
		come()
		k.eventuallyPrepares(what, claim)
	}, func() {
		k.mustUnprepare(claim)
		gone()
	})
	n.publishes("its devices", devices(n.offered()))
	text, err := os.ReadFile(filepath.Join(n.cdi(), "tessera-common.json"))
	n.must(err)
	if !strings.Contains(string(text), libraries) {
		n.t.Errorf("%s: the common spec has no %s:\n%s", what, libraries, text)
	}
	k.mustUnprepare(claim)
}

// TestExtras prepares a claim whose DeviceClass has the device nodes of GPUDirect Storage and GDRCopy, once their modules are
// loaded, and refuses one that requests them itself.
func TestExtras(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	_, k := n.run()
	const both = `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","devices":["gds","gdrcopy"]}`
	forbidden := n.claim("forbidden", []gpu.Device{n.whole(1)}, onNode(n), parameters(driver, both))
	if _, err := k.prepare(forbidden); err == nil || !strings.Contains(err.Error(), "devices: Forbidden: is only for DeviceClasses") {
		t.Fatalf("in the claim's own parameters: %v", err)
	}
	if message := n.warns(forbidden, "InvalidParameters"); !strings.Contains(message, "request a DeviceClass that has it") {
		t.Errorf("%q", message)
	}
	claim := n.claim("asking", []gpu.Device{n.whole(0)}, onNode(n), classParameters(both))
	if _, err := k.prepare(claim); err == nil || !strings.Contains(err.Error(), "gds: no /dev/nvidia-fs[0-9]* on this node") {
		t.Fatalf("without the modules: %v", err)
	}
	if message := n.warns(claim, "Unsupported"); !strings.Contains(message, "load the module nvidia-fs") {
		t.Errorf("%q", message)
	}
	listed := filepath.Join(fakegpu.ProcRoot(n.machine()), "devices")
	text, err := os.ReadFile(listed)
	n.must(err)
	longer := strings.Replace(string(text), "Character devices:\n", "Character devices:\n240 nvidia-fs\n241 gdrdrv\n", 1)
	n.must(os.WriteFile(listed+".next", []byte(longer), 0o600))
	n.must(os.Rename(listed+".next", listed)) // atomically, since the agent may read it at any time
	for name, major := range map[string]uint32{"nvidia-fs0": 240, "nvidia-fs15": 240, "gdrdrv": 241} {
		n.must(unix.Mknod(filepath.Join(fakegpu.DevRoot(n.machine()), "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, 0))))
	}
	got := strings.Join(n.container(k.mustPrepare(claim)).nodes(), " ")
	for _, want := range []string{"/dev/gdrdrv", "/dev/nvidia-fs0 ", "/dev/nvidia-fs15"} {
		if !strings.Contains(got, want) {
			t.Errorf("nodes %s, want %s", got, want)
		}
	}
	other := n.claim("other", []gpu.Device{n.whole(1)})
	if got := strings.Join(n.container(k.mustPrepare(other)).nodes(), " "); strings.Contains(got, "nvidia-fs") || strings.Contains(got, "gdrdrv") {
		t.Errorf("a claim that did not ask has %s", got)
	}
	k.mustUnprepare(claim)
	k.mustUnprepare(other)
	n.isClean()
}
