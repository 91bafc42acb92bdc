package hook

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		t.Fatalf("mount %s: %v", target, err)
	}
}

func TestReadOnlyRootIsAWarning(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	b.write("/etc/x", "")
	mount(t, b.root, b.root, "", unix.MS_BIND)
	mount(t, "", b.root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY)
	for _, args := range [][]string{
		{CreateSymlinks, "--link", "a::/etc/b", "--link", "c::/usr/d"},
		{UpdateLDCache, "--folder", "/usr/lib64"},
		{EnableCUDACompat, "--host-driver-version=580.65.06"},
		{DisableDeviceNodeModification},
	} {
		log, err := b.try(args...)
		if err != nil {
			t.Errorf("%s: %v", args[0], err)
		}
		writes := args[0] == CreateSymlinks || args[0] == UpdateLDCache
		if warned := strings.Contains(log, "read-only file system"); warned != writes {
			t.Errorf("%s: logged %q, want a warning: %v", args[0], log, writes)
		}
	}
	if err := unix.Unmount(b.root, 0); err != nil {
		t.Fatal(err)
	}
}

// A mount of the user at the path of a link is not changed, and the other links are created.
func TestAMountAtTheLinksPlaceIsAWarning(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	b.write("/lib/libcuda.so.1", "image")
	b.write("/mounted", "user")
	place := filepath.Join(b.root, "lib/libcuda.so.1")
	mount(t, filepath.Join(b.root, "mounted"), place, "", unix.MS_BIND)
	log, err := b.try(CreateSymlinks, "--link", "x::/lib/libcuda.so.1", "--link", "libcuda.so.1::/lib/libcuda.so")
	if err != nil || !strings.Contains(log, "busy") {
		t.Errorf("got %v, %q, want a warning", err, log)
	}
	if got := b.read("/lib/libcuda.so"); got != "user" {
		t.Errorf("the other link: got %q, want the user's file", got)
	}
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
}

// The links in /proc that lead to other processes' roots and open files are not followed.
func TestMagicLinksAreNotFollowed(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	host := outside(t)
	b.folder("/proc")
	proc := filepath.Join(b.root, "proc")
	mount(t, "proc", proc, "proc", 0)
	b.link("/proc/1/root"+host, "/etc")
	b.link("/proc/self/cwd", "/usr")
	t.Chdir(host)
	everyHook(b)
	if err := unix.Unmount(proc, 0); err != nil {
		t.Fatal(err)
	}
}

// openParams mounts procfs in the bundle and returns where, its root, and handles of a folder and of a file in it that stand for those of the driver.
func openParams(t *testing.T, b bundle) (proc string, r root, folder, target *os.File) {
	t.Helper()
	b.folder("/proc")
	proc = filepath.Join(b.root, "proc")
	mount(t, "proc", proc, "proc", 0)
	r = b.open()
	folder, failedFolder := r.lookup("/proc/sys/kernel")
	target, failedTarget := r.lookup("/proc/sys/kernel/ostype")
	if err := errors.Join(failedFolder, failedTarget); err != nil {
		t.Fatal(err)
	}
	return proc, r, folder, target
}

// The parameters are replaced in the container only, by a file that cannot be changed. The test uses another file of
// procfs in place of the driver's.
func TestOvermount(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	proc, r, folder, target := openParams(t, b)
	c := container{root: r, warn: t.Errorf}
	const text = "ModifyDeviceFiles: 0\n"
	if err := c.mask(folder, target, []byte(text)); err != nil || b.read("/proc/sys/kernel/ostype") != "Linux\n" {
		t.Fatalf("parameters that need no change: %v", err)
	}
	if err := c.mask(target, target, []byte("ModifyDeviceFiles: 1\n")); err == nil {
		t.Error("a file was taken for a folder")
	}
	if err := c.mask(folder, target, []byte("ModifyDeviceFiles: 1\n")); err != nil {
		t.Fatal(err)
	}
	if got := b.read("/proc/sys/kernel/ostype"); got != text {
		t.Errorf("the container reads %q, want %q", got, text)
	}
	if got := b.read("/proc/sys/kernel/osrelease"); got == "" {
		t.Error("the rest of the folder is hidden")
	}
	path := filepath.Join(proc, "sys/kernel/ostype")
	if err := os.WriteFile(path, []byte("x"), 0); !os.IsPermission(err) && !strings.Contains(err.Error(), "read-only") {
		t.Errorf("writing to the parameters: got %v, want that it is refused", err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, b.root) {
			ours = append(ours, line)
		}
	}
	if len(ours) != 2 || !strings.Contains(ours[1], path+" tmpfs ro,nosuid,nodev,noexec") {
		t.Errorf("mounts: got %q, want proc and one file, read-only and hardened", ours)
	}
	if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

func TestParamsOfAnImageAreNotMountedOver(t *testing.T) {
	b := newBundle(t)
	b.write(paramsPath, "ModifyDeviceFiles: 1\n")
	if _, err := b.try(DisableDeviceNodeModification); err == nil || !strings.Contains(err.Error(), "not of procfs") {
		t.Errorf("got %v, want that the file is not of procfs", err)
	}
}

func TestWithoutDeviceFiles(t *testing.T) {
	tests := map[string]struct {
		text, want string
		changed    bool
	}{
		"on":                      {"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n", "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n", true},
		"off":                     {"ModifyDeviceFiles: 0\n", "ModifyDeviceFiles: 0\n", false},
		"unknown":                 {"DeviceFileMode: 438\n", "DeviceFileMode: 438\n", false},
		"a name that contains it": {"XModifyDeviceFiles: 1\n", "XModifyDeviceFiles: 1\n", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := withoutDeviceFiles([]byte(test.text))
			if string(got) != test.want || changed != test.changed {
				t.Errorf("got %q, %v, want %q, %v", got, changed, test.want, test.changed)
			}
		})
	}
}
