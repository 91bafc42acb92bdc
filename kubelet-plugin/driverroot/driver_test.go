package driverroot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

const version = "580.65.06"

// host is a host in a temporary folder, which the tested code accesses through a mount.
type host struct {
	t *testing.T
	Roots
}

// devices are the character devices of the kernel.
const devices = "Character devices:\n  1 mem\n120 nvidia\n121 nvidia-uvm\n122 nvidia-caps\n"

// newHost returns a host with a complete small driver installed at the root: libraries in a multiarch folder that a link
// leads to as well, as in distributions.
func newHost(t *testing.T) host {
	t.Helper()
	top := t.TempDir()
	h := host{t: t, Roots: Roots{
		Host: top, Proc: filepath.Join(top, "proc"), Sys: filepath.Join(top, "sys"),
	}}
	h.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "+version+"  Release Build  (a@b)  Sun Jul 27 07:14:22 UTC 2025\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
	h.write("/proc/devices", devices+"\nBlock devices:\n  7 loop\n121 virtblk\n")
	h.write("/proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n")
	h.write("/proc/sys/kernel/osrelease", "6.1.0-13-amd64\n")
	h.write("/proc/sys/kernel/random/boot_id", "3f0c9d1e-0000-4000-8000-000000000001\n")
	h.write("/dev/null", "") // the host has a /dev, and no node of the driver
	for _, library := range []string{"libcuda.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so.", "libnvidia-allocator.so.", "vdpau/libvdpau_nvidia.so."} {
		h.write("/usr/lib/x86_64-linux-gnu/"+library+version, "library")
	}
	h.link("usr/lib", "/lib")
	h.link("libcuda.so."+version, "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
	h.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so."+version, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
	h.link("../libnvidia-allocator.so."+version, "/usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so")
	h.write("/usr/lib/x86_64-linux-gnu/libc.so.6", "not the driver's")
	h.link("libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so")
	h.write("/usr/bin/nvidia-smi", "program")
	// Kernels record times in steps: a change must not be in the step in which the folder was created.
	past := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(filepath.Join(top, "usr/lib/x86_64-linux-gnu"), past, past); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h host) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.Host, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) link(target, path string) {
	h.t.Helper()
	path = filepath.Join(h.Host, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) node(path string, major, minor uint32) {
	h.t.Helper()
	path = filepath.Join(h.Host, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.Host, path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) scan() Driver {
	h.t.Helper()
	driver, err := Scan(h.Roots)
	if err != nil {
		h.t.Fatal(err)
	}
	return driver
}

// same returns a file with the same path on the host and in the container.
func same(path string) File { return File{Host: path, Path: path} }

func TestScan(t *testing.T) {
	h := newHost(t)
	lib := "/usr/lib/x86_64-linux-gnu/"
	want := Driver{
		Version: version,
		Libraries: []File{
			same(lib + "libcuda.so." + version),
			same(lib + "libnvidia-allocator.so." + version),
			same(lib + "libnvidia-ml.so." + version),
			same(lib + "libnvidia-ptxjitcompiler.so." + version),
			same(lib + "vdpau/libvdpau_nvidia.so." + version),
		},
		Links: []Link{
			{Target: "../libnvidia-allocator.so." + version, Path: lib + "gbm/nvidia-drm_gbm.so"},
			{Target: "libcuda.so.1", Path: lib + "libcuda.so"},
			{Target: "libcuda.so." + version, Path: lib + "libcuda.so.1"},
			{Target: "libnvidia-ml.so." + version, Path: lib + "libnvidia-ml.so.1"},
		},
		Folders:  []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/vdpau"},
		Programs: []File{same("/usr/bin/nvidia-smi")},
		Dev:      "/dev",
		Control: []Node{
			{Path: "/dev/nvidiactl", Major: 120, Minor: 255},
			{Path: "/dev/nvidia-uvm", Major: 121, Minor: 0},
			{Path: "/dev/nvidia-uvm-tools", Major: 121, Minor: 1},
		},
		Access:       Access{Mode: 0o666},
		Majors:       map[string]uint32{"mem": 1, "nvidia": 120, "nvidia-uvm": 121, "nvidia-caps": 122},
		Capabilities: map[string]uint32{"config": 1, "monitor": 2, "gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13},
	}
	if diff := cmp.Diff(want, h.scan()); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
}

func TestScanFindsWhatIsOptional(t *testing.T) {
	h := newHost(t)
	h.write("/lib/firmware/nvidia/"+version+"/gsp_ga10x.bin", "")
	h.write("/lib/firmware/nvidia/"+version+"/notes.txt", "")
	h.write("/etc/OpenCL/vendors/nvidia.icd", "")
	h.write("/usr/share/vulkan/icd.d/nvidia_icd.json", "")
	h.write("/usr/lib/xorg/modules/drivers/nvidia_drv.so", "")
	h.write("/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so."+version, "")
	h.link("libglxserver_nvidia.so."+version, "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so")
	h.write("/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2", "")
	h.write("/run/nvidia-persistenced/socket", "")
	h.write("/run/nvidia-fabricmanager/socket", "")
	h.write("/tmp/nvidia-mps/control", "")
	h.write("/etc/alternatives/smi", "program")
	h.link("/etc/alternatives/smi", "/usr/local/bin/nvidia-debugdump")
	h.write("/proc/devices", devices+"120 nvidia-modeset\n")

	d := h.scan()
	got := map[string][]File{"firmware": d.Firmware, "settings": d.Settings, "sockets": d.Sockets, "programs": d.Programs}
	want := map[string][]File{
		"firmware": {same("/usr/lib/firmware/nvidia/" + version + "/gsp_ga10x.bin")},
		"settings": {
			same("/etc/OpenCL/vendors/nvidia.icd"),
			{Host: "/usr/share/vulkan/icd.d/nvidia_icd.json", Path: "/etc/vulkan/icd.d/nvidia_icd.json"},
		},
		"sockets":  {same("/run/nvidia-persistenced/socket")},
		"programs": {same("/usr/bin/nvidia-smi"), {Host: "/etc/alternatives/smi", Path: "/usr/local/bin/nvidia-debugdump"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/usr/lib/xorg/modules/drivers/nvidia_drv.so", "/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2"} {
		if !slices.ContainsFunc(d.Libraries, func(f File) bool { return f.Path == path }) {
			t.Errorf("%s is not among the libraries", path)
		}
	}
	glx := Link{Target: "libglxserver_nvidia.so." + version, Path: "/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so"}
	if !slices.Contains(d.Links, glx) {
		t.Errorf("%v is not among the links %v", glx, d.Links)
	}
	if len(d.Folders) != 2 {
		t.Errorf("folders: got %q, want those of libraries alone", d.Folders)
	}
	if len(d.Control) != 4 || d.Control[3].Path != "/dev/nvidia-modeset" {
		t.Errorf("control nodes: got %v, want nvidia-modeset as the fourth", d.Control)
	}
}

// A driver container has its own tree: absolute links in it lead to its root, its libraries are mounted in the container
// without the prefix, and its firmware folder may be the kernel's parameter.
func TestScanOfADriverContainer(t *testing.T) {
	h := newHost(t)
	root := "/run/nvidia/driver"
	h.write(root+"/usr/lib64/libcuda.so."+version, "")
	h.write(root+"/usr/lib64/libnvidia-ml.so."+version, "")
	h.link("/usr/lib64/libcuda.so."+version, root+"/usr/lib64/libcuda.so.1")
	h.link("/usr/lib64/libnvidia-ml.so."+version, root+"/usr/lib64/libnvidia-ml.so.1")
	h.write(root+"/opt/firmware/nvidia/"+version+"/gsp_tu10x.bin", "")
	h.write("/sys/module/firmware_class/parameters/path", root+"/opt/firmware\n")

	d := h.scan()
	want := Driver{
		Version: version,
		Libraries: []File{
			{Host: root + "/usr/lib64/libcuda.so." + version, Path: "/usr/lib64/libcuda.so." + version},
			{Host: root + "/usr/lib64/libnvidia-ml.so." + version, Path: "/usr/lib64/libnvidia-ml.so." + version},
		},
		Links: []Link{
			{Target: "libcuda.so.1", Path: "/usr/lib64/libcuda.so"},
			{Target: "libcuda.so." + version, Path: "/usr/lib64/libcuda.so.1"},
			{Target: "libnvidia-ml.so." + version, Path: "/usr/lib64/libnvidia-ml.so.1"},
		},
		Folders: []string{"/usr/lib64"},
		Firmware: []File{{
			Host: root + "/opt/firmware/nvidia/" + version + "/gsp_tu10x.bin",
			Path: "/opt/firmware/nvidia/" + version + "/gsp_tu10x.bin",
		}},
		Dev: "/dev", Control: d.Control, Access: d.Access, Majors: d.Majors, Capabilities: d.Capabilities,
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("Scan (-want +got):\n%s", diff)
	}
}

func TestScanNamesWhatIsMissing(t *testing.T) {
	tests := map[string]struct {
		breakIt func(host)
		want    string
	}{
		"no driver":             {func(h host) { h.remove("/proc/driver/nvidia/version") }, "driver/nvidia/version"},
		"no version":            {func(h host) { h.write("/proc/driver/nvidia/version", "NVRM version: none\n") }, "no version in"},
		"another version":       {func(h host) { h.write("/proc/driver/nvidia/version", "NVRM version: x 575.51.03 y\n") }, "libcuda.so.575.51.03"},
		"no NVML":               {func(h host) { h.remove("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version) }, "libnvidia-ml.so." + version},
		"neither MIG nor tools": {func(h host) { h.remove("/proc/driver/nvidia-caps/mig-minors"); h.remove("/usr/bin/nvidia-smi") }, ""},
		"uvm not loaded": {func(h host) { h.write("/proc/devices", "Character devices:\n120 nvidia\n") },
			"device node /dev/nvidia-uvm: nvidia-uvm is not among the kernel's character devices: load it with modprobe nvidia-uvm on the node"},
		"driver not loaded":     {func(h host) { h.write("/proc/devices", "Character devices:\n121 nvidia-uvm\n") }, "device node /dev/nvidiactl: nvidia is not among"},
		"unreadable minors":     {func(h host) { h.write("/proc/driver/nvidia-caps/mig-minors", "monitor two\n") }, `"monitor two"`},
		"library leads nowhere": {func(h host) { h.link("gone", "/usr/lib/x86_64-linux-gnu/libnvidia-x.so."+version) }, "libnvidia-x.so." + version},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.breakIt(h)
			_, err := Scan(h.Roots)
			if test.want == "" {
				if err != nil {
					t.Errorf("Scan: %v, want none: what is missing is optional", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Scan: got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestNoDriver(t *testing.T) {
	roots := Roots{Host: "/", Proc: t.TempDir()}
	if _, err := Scan(roots); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Scan: got %v, want ErrNotLoaded", err)
	}
	if _, err := roots.Fingerprint(); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Fingerprint: got %v, want ErrNotLoaded", err)
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n":           "535.104.05",
		"GCC version:  gcc version 12.2.0\nNVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.45\n": "595.45",
	} {
		proc := t.TempDir()
		h := host{t: t, Roots: Roots{Host: proc, Proc: proc}}
		h.write("/driver/nvidia/version", text)
		if got, err := h.version(); got != want || err != nil {
			t.Errorf("version of %q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestGPUAndCapability(t *testing.T) {
	h := newHost(t)
	d := h.scan()
	gpu, err := d.GPU(7)
	if diff := cmp.Diff(Node{Path: "/dev/nvidia7", Major: 120, Minor: 7}, gpu); diff != "" || err != nil {
		t.Errorf("GPU 7: %v (-want +got):\n%s", err, diff)
	}
	if _, err := (Driver{}).GPU(1); err == nil || !strings.Contains(err.Error(), "/dev/nvidia1") {
		t.Errorf("GPU 1 without a driver: got error %v, want one that names /dev/nvidia1", err)
	}
	capability, err := d.Capability("gpu0/gi1/access")
	if diff := cmp.Diff(Node{Path: "/dev/nvidia-caps/nvidia-cap12", Major: 122, Minor: 12}, capability); diff != "" || err != nil {
		t.Errorf("capability: %v (-want +got):\n%s", err, diff)
	}
	if _, err := d.Capability("gpu0/gi9/access"); err == nil {
		t.Error("capability of an unknown instance: got none, want an error")
	}
	if _, err := (Driver{Capabilities: d.Capabilities}).Capability("monitor"); err == nil {
		t.Error("capability without its major: got none, want an error")
	}
}

// The roots may be set, as paths of this process or of the host, and are determined otherwise.
func TestRoots(t *testing.T) {
	const container = "/run/nvidia/driver"
	tests := map[string]struct {
		prepare func(*host)
		library string
		dev     string
	}{
		"on the host": {func(*host) {}, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version, "/dev"},
		"an empty driver container": {func(h *host) { h.write(container+"/etc/os-release", "") },
			"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so." + version, "/dev"},
		"a driver container": {func(h *host) { h.container(container) }, container + "/usr/lib64/libnvidia-ml.so." + version, "/dev"},
		"with its device nodes": {func(h *host) { h.container(container); h.nodes(container) },
			container + "/usr/lib64/libnvidia-ml.so." + version, container + "/dev"},
		"set, as seen": {func(h *host) {
			h.container("/opt/nvidia")
			h.nodes("/opt/x")
			h.Driver = h.Host + "/opt/nvidia"
			h.Dev = h.Host + "/opt/x"
		},
			"/opt/nvidia/usr/lib64/libnvidia-ml.so." + version, "/opt/x/dev"},
		"set, as the host's": {func(h *host) { h.container("/opt/nvidia"); h.Driver = "/opt/nvidia" },
			"/opt/nvidia/usr/lib64/libnvidia-ml.so." + version, "/dev"},
		"through a link": {func(h *host) {
			h.container("/opt/nvidia")
			h.link("/opt/nvidia", "/opt/current")
			h.Driver = h.Host + "/opt/current"
		},
			"/opt/nvidia/usr/lib64/libnvidia-ml.so." + version, "/dev"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.prepare(&h)
			library, err := h.Library()
			if want := h.Host + test.library; library != want || err != nil {
				t.Errorf("Library: got %s, %v, want %s", library, err, want)
			}
			d := h.scan()
			if d.Dev != test.dev {
				t.Errorf("folder of nodes: got %s, want %s", d.Dev, test.dev)
			}
			if !slices.ContainsFunc(d.Libraries, func(f File) bool { return f.Host == test.library }) {
				t.Errorf("libraries: got %v, want %s among them", d.Libraries, test.library)
			}
		})
	}
}

// container creates a driver without device nodes below the path.
func (h host) container(path string) {
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		h.write(path+"/usr/lib64/"+name+"."+version, "")
		h.link("/usr/lib64/"+name+"."+version, path+"/usr/lib64/"+name+".1")
	}
}

// nodes creates a folder of nodes below the path.
func (h host) nodes(path string) { h.write(path+"/dev/null", "") }

// Every change after which a spec must be written again changes the fingerprint, and nothing else does.
func TestFingerprint(t *testing.T) {
	tests := map[string]struct {
		change func(host)
		same   bool
	}{
		"nothing": {func(host) {}, true},
		"a log":   {func(h host) { h.write("/var/log/messages", "x") }, true},
		"version": {func(h host) { h.write("/proc/driver/nvidia/version", "NVRM version: x 575.51.03 y\n") }, false},
		"boot":    {func(h host) { h.write("/proc/sys/kernel/random/boot_id", "other\n") }, false},
		"a library replaced": {func(h host) {
			h.remove("/usr/lib/x86_64-linux-gnu/libcuda.so." + version)
			h.write("/usr/lib/x86_64-linux-gnu/libcuda.so."+version, "new")
		}, false},
		"a module appears": {func(h host) { h.write("/proc/devices", devices+"120 nvidia-modeset\n") }, false},
		"a number changes": {func(h host) { h.write("/proc/devices", strings.Replace(devices, "121", "123", 1)) }, false},
		"the nodes' owner": {func(h host) { h.write("/proc/driver/nvidia/params", "DeviceFileGID: 44\n") }, false},
		"a node of no use": {func(h host) { h.write("/dev/nvidia-uvm", "") }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			before, err := h.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			test.change(h)
			after, err := h.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			if (before == after) != test.same {
				t.Errorf("fingerprints %q and %q: equal %v, want %v", before, after, before == after, test.same)
			}
		})
	}
}

func TestExtra(t *testing.T) {
	h := newHost(t)
	d := h.scan()
	for _, name := range []string{"gds", "gdrcopy", "rdma"} {
		if _, err := h.Extra(d, name); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), name+": no /dev/") {
			t.Errorf("%s, of which there is none: %v", name, err)
		}
	}
	h.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n240 nvidia-fs\n")
	h.node("/dev/nvidia-fs0", 240, 0)
	h.node("/dev/infiniband/uverbs1", 231, 193)
	h.node("/dev/infiniband/issm0", 231, 64)
	h.write("/etc/cufile.json", "{}")
	want := Extra{Nodes: []File{same("/dev/nvidia-fs0")}, Files: []File{same("/etc/cufile.json")}}
	got, err := h.Extra(d, "gds")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("gds: %v (-want +got):\n%s", err, diff)
	}
	want = Extra{Nodes: []File{same("/dev/infiniband/uverbs1")}}
	got, err = h.Extra(d, "rdma")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("rdma without a connection manager: %v (-want +got):\n%s", err, diff)
	}

	// A driver container has its own nodes; missing ones are read from the host.
	h.container("/run/nvidia/driver")
	h.nodes("/run/nvidia/driver")
	h.node("/run/nvidia/driver/dev/nvidia-fs7", 240, 7)
	d = h.scan()
	for name, node := range map[string]string{"gds": "/run/nvidia/driver/dev/nvidia-fs7", "rdma": "/dev/infiniband/uverbs1"} {
		if got, err := h.Extra(d, name); err != nil || len(got.Nodes) != 1 || got.Nodes[0].Host != node {
			t.Errorf("%s: %+v, %v, want %s", name, got, err, node)
		}
	}
	h.remove("/dev/infiniband/uverbs1")
	h.write("/dev/infiniband/uverbs1", "")
	if _, err := h.Extra(d, "rdma"); err == nil || !strings.Contains(err.Error(), "not a character device") {
		t.Errorf("a file: %v", err)
	}
}

// Each folder in which a distribution has the driver's libraries is found without the others.
func TestLibraryFolders(t *testing.T) {
	for _, folder := range libraryFolders {
		t.Run(folder, func(t *testing.T) {
			h := newHost(t)
			for _, path := range []string{"usr/lib", "lib"} {
				if err := os.RemoveAll(filepath.Join(h.Host, path)); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"libcuda.so.", "libnvidia-ml.so."} {
				h.write(folder+"/"+name+version, "library")
			}
			h.link("libnvidia-ml.so."+version, folder+"/libnvidia-ml.so.1")
			want := []File{same(folder + "/libcuda.so." + version), same(folder + "/libnvidia-ml.so." + version)}
			if d := h.scan(); !slices.Equal(d.Libraries, want) || !slices.Equal(d.Folders, []string{folder}) {
				t.Errorf("libraries %v in %v, want %v", d.Libraries, d.Folders, want)
			}
			if path, err := h.Library(); err != nil || path != filepath.Join(h.Host, folder, "libnvidia-ml.so."+version) {
				t.Errorf("NVML: %s, %v", path, err)
			}
		})
	}
}

// A driver in a separate folder is found by the links to it, or by the linker's cache: the layout of a machine with an H200, on which nvidia-smi in
// /usr/bin is a script that works on the host only.
func TestDriverInItsOwnFolder(t *testing.T) {
	const own = "/usr/local/nvidia/lib64"
	arch := map[string]ldso.ABI{"amd64": ldso.X8664, "arm64": ldso.AArch64}[runtime.GOARCH]
	for name, find := range map[string]func(host){
		"links": func(h host) {
			for _, library := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
				h.link(own+"/"+library, "/usr/lib/"+library)
			}
		},
		"cache": func(h host) {
			h.write("/etc/ld.so.cache", string(ldso.Encode([]ldso.Entry{
				{Name: nvmlName, Path: "/usr/lib32/" + nvmlName, ABI: ldso.I386},
				{Name: nvmlName, Path: own + "/" + nvmlName, ABI: arch},
			})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			for _, path := range []string{"usr/lib", "lib"} {
				if err := os.RemoveAll(filepath.Join(h.Host, path)); err != nil {
					t.Fatal(err)
				}
			}
			for _, library := range []string{"libcuda.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so."} {
				h.write(own+"/"+library+version, "library")
				h.link(library+version, own+"/"+library+"1")
			}
			h.write("/usr/local/nvidia/bin/nvidia-smi", "program")
			before, err := h.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			find(h)
			d := h.scan()
			want := []File{same(own + "/libcuda.so." + version), same(own + "/libnvidia-ml.so." + version), same(own + "/libnvidia-ptxjitcompiler.so." + version)}
			if !slices.Equal(d.Libraries, want) || !slices.Equal(d.Folders, []string{own}) {
				t.Errorf("libraries %v in %v, want %v in %s", d.Libraries, d.Folders, want, own)
			}
			if program := same("/usr/local/nvidia/bin/nvidia-smi"); !slices.Equal(d.Programs, []File{program}) {
				t.Errorf("programs %v, want %v", d.Programs, program)
			}
			if path, err := h.Library(); err != nil || path != filepath.Join(h.Host, own, "libnvidia-ml.so."+version) {
				t.Errorf("NVML: %s, %v", path, err)
			}
			if after, err := h.Fingerprint(); err != nil || after == before {
				t.Errorf("the fingerprint with the driver is %q, %v", after, err)
			}
		})
	}
}

// A linker's cache that cannot be read, or that leads nowhere, is as none.
func TestLinkersCacheOfNoUse(t *testing.T) {
	for name, make := range map[string]func(host){
		"damaged": func(h host) { h.write("/etc/ld.so.cache", "glibc-ld.so.cache1.1\xff\xff\xff\xff") },
		"pipe": func(h host) {
			h.folder("/etc")
			if err := unix.Mkfifo(filepath.Join(h.Host, "etc/ld.so.cache"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"missing library": func(h host) {
			h.write("/etc/ld.so.cache", string(ldso.Encode([]ldso.Entry{{Name: nvmlName, Path: "/opt/" + nvmlName, ABI: ldso.X8664}})))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.remove("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
			make(h)
			if _, err := h.Library(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("NVML: %v", err)
			}
		})
	}
}
