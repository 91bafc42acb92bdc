package driverroot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loop creates a link to itself, so that nothing below the path can be resolved.
func (h host) loop(path string) { h.link(path, path) }

// folder creates an empty folder.
func (h host) folder(path string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Join(h.Host, path), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// expectError fails unless the error contains the text.
func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

// Each file that Scan requires may be missing, of another type, or behind a link that cannot be followed.
func TestScanFailures(t *testing.T) {
	const (
		libraries = "/usr/lib/x86_64-linux-gnu"
		firmware  = "/lib/firmware/nvidia/" + version
	)
	tests := map[string]struct {
		damage func(*host)
		want   string
	}{
		"version is a folder": {func(h *host) {
			h.remove("/proc/driver/nvidia/version")
			h.folder("/proc/driver/nvidia/version")
		}, "read the loaded driver's version"},
		"driver root does not exist":  {func(h *host) { h.Driver = "/opt/missing" }, "read driver root /opt/missing"},
		"driver root is a link loop":  {func(h *host) { h.loop("/opt/driver"); h.Driver = "/opt/driver" }, "resolve /opt/driver"},
		"no kernel release":           {func(h *host) { h.remove("/proc/sys/kernel/osrelease") }, "read the kernel's release"},
		"firmware leads nowhere":      {func(h *host) { h.link("gone", firmware+"/gsp_ga10x.bin") }, "follow " + "/usr" + firmware + "/gsp_ga10x.bin"},
		"X module leads nowhere":      {func(h *host) { h.link("gone", libraries+"/nvidia/xorg/nvidia_drv.so") }, "nvidia_drv.so"},
		"no list of devices":          {func(h *host) { h.remove("/proc/devices") }, "read the kernel's devices"},
		"MIG minors cannot be opened": {func(h *host) { h.replaceByFile("/proc/driver/nvidia-caps") }, "read the MIG minors"},
		"MIG minors are a folder": {func(h *host) {
			h.remove("/proc/driver/nvidia-caps/mig-minors")
			h.folder("/proc/driver/nvidia-caps/mig-minors")
		}, "read the MIG minors"},
		"parameters are a folder": {func(h *host) { h.folder("/proc/driver/nvidia/params") }, "read the driver's parameters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.damage(&h)
			_, err := Scan(h.Roots)
			expectError(t, err, test.want)
		})
	}
}

// replaceByFile replaces a folder by an empty file.
func (h host) replaceByFile(path string) {
	h.t.Helper()
	if err := os.RemoveAll(filepath.Join(h.Host, path)); err != nil {
		h.t.Fatal(err)
	}
	h.write(path, "")
}

// Folders that cannot be read, and links that leave the tree or loop, hide only their targets.
func TestScanIgnoresHostileFolders(t *testing.T) {
	h := newHost(t)
	want := h.scan()
	h.write("/usr/lib64", "a file in place of a folder")
	h.loop("/usr/lib/aarch64-linux-gnu")
	h.loop("/usr/lib/x86_64-linux-gnu/libloop.so")
	h.link("/../../../../etc/passwd", "/usr/lib/x86_64-linux-gnu/libescape.so")
	if diff := cmp.Diff(want, h.scan()); diff != "" {
		t.Errorf("Scan (-before +after):\n%s", diff)
	}
}

// Drivers before 550 register GPUs as nvidia-frontend.
func TestBothFrontendMajors(t *testing.T) {
	for name, driver := range map[string]string{"before 550": "nvidia-frontend", "from 550 on": "nvidia"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("/proc/devices", "Character devices:\n120 "+driver+"\n121 nvidia-uvm\n122 nvidia-caps\n")
			d := h.scan()
			gpu, err := d.GPU(0)
			if err != nil || gpu.Major != 120 || d.Control[0].Major != 120 {
				t.Errorf("GPU %+v, control %+v, %v", gpu, d.Control, err)
			}
			if modeset := slices.Contains(d.Control, Node{Path: "/dev/nvidia-modeset", Major: 120, Minor: 254}); modeset != (driver == "nvidia-frontend") {
				t.Errorf("control %+v: nvidia-modeset %v; drivers before 550 do not list it, later ones list it when it is loaded", d.Control, modeset)
			}
		})
	}
}

func TestFirmwareOfAllFolders(t *testing.T) {
	h := newHost(t)
	h.write("/sys/module/firmware_class/parameters/path", "/opt/firmware\n")
	h.write("/opt/firmware/nvidia/"+version+"/ucodes_x.bin", "")
	h.write("/lib/firmware/nvidia/"+version+"/gsp_tu10x.bin", "")
	h.write("/lib/firmware/nvidia/"+version+"/gsp_ga10x.bin", "")
	var got []string
	for _, f := range h.scan().Firmware {
		got = append(got, f.Path)
	}
	want := []string{
		"/opt/firmware/nvidia/" + version + "/ucodes_x.bin",
		"/usr/lib/firmware/nvidia/" + version + "/gsp_ga10x.bin",
		"/usr/lib/firmware/nvidia/" + version + "/gsp_tu10x.bin",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("firmware (-want +got):\n%s", diff)
	}
}

// A link that was replaced after its folder was listed is left out.
func TestLinkReplacedDuringScan(t *testing.T) {
	h := newHost(t)
	d := h.scan()
	const at = "/usr/lib/x86_64-linux-gnu/libcuda.so." + version
	other := filepath.Join(h.Host, "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
	info, err := os.Lstat(other)
	if err != nil {
		t.Fatal(err)
	}
	root, err := h.driver()
	if err != nil {
		t.Fatal(err)
	}
	if link, ok := d.link(root, at, fs.FileInfoToDirEntry(info)); ok {
		t.Errorf("a regular file counts as link %+v", link)
	}
}

func TestProgram(t *testing.T) {
	h := newHost(t)
	got, err := h.Program("nvidia-smi")
	if want := filepath.Join(h.Host, "/usr/bin/nvidia-smi"); got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := h.Program("nvidia-imex"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "nvidia-imex") {
		t.Errorf("a missing program: %v", err)
	}
	h.Driver = "/opt/missing"
	_, err = h.Program("nvidia-smi")
	expectError(t, err, "/opt/missing")
}

func TestSeeRefusesLoops(t *testing.T) {
	h := newHost(t)
	h.loop("/loop")
	_, err := h.See("/loop/file")
	expectError(t, err, "resolve /loop/file under "+h.Host)
}

func TestDevice(t *testing.T) {
	h := newHost(t)
	h.node("/dev/vfio/7", 240, 7)
	if got, err := h.Device("vfio/7"); got != same("/dev/vfio/7") || err != nil {
		t.Errorf("a device: %+v, %v", got, err)
	}
	if _, err := h.Device("vfio/8"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing device: %v", err)
	}
	h.write("/dev/vfio/9", "")
	_, err := h.Device("vfio/9")
	expectError(t, err, "/dev/vfio/9: not a character device")
	h.loop("/dev/loop")
	_, err = h.Device("loop/x")
	expectError(t, err, "resolve /dev/loop/x")
	h.Driver = "/opt/missing"
	_, err = h.Device("vfio/7")
	expectError(t, err, "/opt/missing")
}

func TestFingerprintFailures(t *testing.T) {
	h := newHost(t)
	h.Driver = "/opt/missing"
	_, err := h.Fingerprint()
	expectError(t, err, "/opt/missing")
	h.remove("/proc/sys/kernel/random/boot_id")
	_, err = h.Fingerprint()
	expectError(t, err, "boot_id")
}

func TestExtraFailures(t *testing.T) {
	h := newHost(t)
	d := h.scan()
	_, err := h.Extra(d, "gpus")
	expectError(t, err, `device group "gpus"`)
	h.node("/dev/nvidia-fs0", 240, 0)
	_, err = h.Extra(d, "gds")
	expectError(t, err, "/dev/nvidia-fs0: nvidia-fs is not among the kernel's character devices")
	h.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n241 nvidia-fs\n")
	_, err = h.Extra(d, "gds")
	expectError(t, err, "/dev/nvidia-fs0: has major 240, the kernel's nvidia-fs has 241")
	h.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n240 nvidia-fs\n")
	h.loop("/etc/cufile.json")
	_, err = h.Extra(d, "gds")
	expectError(t, err, "resolve /etc/cufile.json")
	h.loop("/opt/dev")
	d.Dev = "/opt/dev"
	_, err = h.Extra(d, "gds")
	expectError(t, err, "resolve /opt/dev")
	if err := d.checkExtraNode(filepath.Join(h.Host, "/dev/gone"), "/dev/gone", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a node that was removed meanwhile: %v", err)
	}
	h.remove("/proc/devices")
	_, err = h.Extra(d, "gds")
	expectError(t, err, "read the kernel's devices")
}

// The agent's own nodes are those of the kernel's lists; without a driver, and before nvidia-uvm is loaded, there are none.
func TestOwnNodes(t *testing.T) {
	h := newHost(t)
	h.write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t H100\nDevice Minor: \t 3\n")
	h.write("/proc/driver/nvidia/params", "DeviceFileUID: 1\nDeviceFileGID: 44\nDeviceFileMode: 432\nRmMsg: \"\"\n")
	want := OwnNodes{
		Nodes: []Node{
			{"/dev/nvidiactl", 120, 255}, {"/dev/nvidia-uvm", 121, 0}, {"/dev/nvidia-uvm-tools", 121, 1}, {"/dev/nvidia3", 120, 3},
			{"/dev/nvidia-caps/nvidia-cap1", 122, 1}, {"/dev/nvidia-caps/nvidia-cap2", 122, 2},
		},
		Access: Access{UID: 1, GID: 44, Mode: 0o660},
	}
	got, err := h.OwnNodes()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("OwnNodes: %v (-want +got):\n%s", err, diff)
	}
	for devices, want := range map[string]OwnNodes{"120 nvidia\n": {Missing: "nvidia-uvm"}, "1 mem\n": {}} {
		h.write("/proc/devices", "Character devices:\n"+devices)
		got, err := h.OwnNodes()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("OwnNodes with %q: %v (-want +got):\n%s", devices, err, diff)
		}
	}
}

// A driver container has the modules in its own root.
func TestModuleRoots(t *testing.T) {
	h := newHost(t)
	if got, err := h.ModuleRoots(); err != nil || !slices.Equal(got, []string{h.Host}) {
		t.Errorf("a driver of the host: %q, %v", got, err)
	}
	h.container("/run/nvidia/driver")
	if got, err := h.ModuleRoots(); err != nil || !slices.Equal(got, []string{h.Host + "/run/nvidia/driver", h.Host}) {
		t.Errorf("a driver container: %q, %v", got, err)
	}
	h.Driver = "/opt/missing"
	_, err := h.ModuleRoots()
	expectError(t, err, "/opt/missing")
}
