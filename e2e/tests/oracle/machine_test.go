package oracle

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// libraries are the libraries of drivers that the fake machine lacks, with their sonames.
var libraries = []struct{ name, soname string }{
	{"libnvidia-allocator.so." + version, "libnvidia-allocator.so.1"},
	{"libGLX_nvidia.so." + version, "libGLX_nvidia.so.0"},
	{"libnvidia-opticalflow.so." + version, "libnvidia-opticalflow.so.1"},
	{"libnvidia-vulkan-producer.so." + version, "libnvidia-vulkan-producer.so"},
	{"libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-gbm.so.1"},
	{"libnvidia-egl-wayland.so.1.1.19", "libnvidia-egl-wayland.so.1"},
	{"libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4"},
	{"vdpau/libvdpau_nvidia.so." + version, "libvdpau_nvidia.so.1"},
}

// links are the links that an installation creates for them, below the library folder.
var links = []struct{ path, target string }{
	{"libnvidia-allocator.so.1", "libnvidia-allocator.so." + version},
	{"libGLX_nvidia.so.0", "libGLX_nvidia.so." + version},
	{"libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so." + version},
	{"libnvidia-vulkan-producer.so", "libnvidia-vulkan-producer.so." + version},
	{"libnvidia-egl-gbm.so.1", "libnvidia-egl-gbm.so.1.1.2"},
	{"libnvidia-egl-wayland.so.1", "libnvidia-egl-wayland.so.1.1.19"},
	{"vdpau/libvdpau_nvidia.so.1", "libvdpau_nvidia.so." + version},
	{"vdpau/libvdpau_nvidia.so", "libvdpau_nvidia.so.1"},
	{"../xorg/modules/extensions/libglxserver_nvidia.so", "libglxserver_nvidia.so." + version},
}

// files are the other files of an installation, below the driver's root.
var files = []string{
	"usr/lib/xorg/modules/drivers/nvidia_drv.so",
	"usr/lib/xorg/modules/extensions/libglxserver_nvidia.so." + version,
	"usr/bin/nvidia-cuda-mps-control",
	"usr/bin/nvidia-cuda-mps-server",
	"usr/bin/nvidia-debugdump",
	"usr/bin/nvidia-imex",
	"usr/bin/nvidia-imex-ctl",
	"usr/bin/nvidia-persistenced",
	"usr/bin/nvidia-xconfig",
	"usr/share/glvnd/egl_vendor.d/10_nvidia.json",
	"usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
	"usr/share/nvidia/nvoptix.bin",
	"usr/share/vulkan/icd.d/nvidia_icd.json",
	"usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
	"usr/share/X11/xorg.conf.d/10-nvidia.conf",
	"etc/OpenCL/vendors/nvidia.icd",
}

var sockets = []string{
	"run/nvidia-persistenced/socket",
	"run/nvidia-fabricmanager/socket",
}

// machine returns a fake machine with everything that an installed driver may have.
func machine(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	dir := t.TempDir()
	if err := fakegpu.Install(t.Context(), dir, fakegpu.Spec{Machine: "h100x8", DriverVersion: version}); err != nil {
		t.Fatal(err)
	}
	if err := fakegpu.MakeNodes(dir); err != nil { // nvcdi describes the nodes that it finds
		t.Fatal(err)
	}
	root, folder := fakegpu.DriverRoot(dir), filepath.Dir(fakegpu.Library(dir))
	for _, name := range files {
		if err := os.WriteFile(made(t, filepath.Join(root, name)), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range libraries {
		cmd := exec.CommandContext(t.Context(), "gcc", "-shared", "-nostdlib", "-xc", "/dev/null",
			"-Wl,-soname,"+l.soname, "-o", made(t, filepath.Join(folder, l.name)))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", l.name, err, out)
		}
	}
	for _, l := range links {
		if err := os.Symlink(l.target, made(t, filepath.Join(folder, l.path))); err != nil {
			t.Fatal(err)
		}
	}
	for _, socket := range sockets {
		if err := unix.Mknod(made(t, filepath.Join(root, socket)), unix.S_IFSOCK|0o666, 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// made returns the path after its folder was made.
func made(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
