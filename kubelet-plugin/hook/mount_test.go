package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// The hooks run as root and write to the container's own root only: a volume of the pod can be a folder of the host, or of other pods. They read from
// volumes, and what does not depend on the volume is written.
func TestVolumesAreNotChanged(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	for _, volume := range []string{"/etc", "/etc/ld.so.conf.d", "/usr/lib64", "/usr", "/lib"} {
		t.Run(volume, func(t *testing.T) {
			b := newBundle(t)
			mount(t, b.root, b.root, "", unix.MS_BIND)
			host := t.TempDir()
			for path, text := range map[string]string{
				"ld.so.cache": "the host's", "ld.so.conf": "/opt/lib\n", "00-tessera-compat.conf": "the host's", "passwd": "the host's",
				"ld-musl-x86_64.path": "/lib\n", "ld-musl-x86_64.so.1": "",
			} {
				if err := os.WriteFile(filepath.Join(host, path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b.folder("/etc/ld.so.conf.d")
			b.folder("/usr/lib64")
			b.folder("/lib")
			mount(t, host, filepath.Join(b.root, volume), "", unix.MS_BIND)
			before := tree(t, host)
			log, err := b.try(All, "--host-driver-version", "580.65.06", "--folder", "/usr/lib64", "--folder", "/opt/new", "--link", "libcuda.so.580::/usr/lib64/libcuda.so.1",
				"--link", "x::/usr/lib64/deep/er/x", "--link", "libcuda.so.1::/usr/lib/y/libcuda.so")
			if err != nil {
				t.Errorf("the container does not start: %v", err)
			}
			if diff := cmp.Diff(before, tree(t, host)); diff != "" {
				t.Errorf("the volume (-before +after):\n%s", diff)
			}
			if touched := volume != "/lib"; touched != strings.Contains(log, "it is on a volume, which is not changed") {
				t.Errorf("logged %q, want a warning: %v", log, touched)
			}
			if unlisted := volume == "/etc" || volume == "/etc/ld.so.conf.d"; unlisted != strings.Contains(log, UpdateLDCache+": warning: make folder") {
				t.Errorf("logged %q, want a warning about %s: %v", log, driverDropIn, unlisted)
			}
			if _, err := os.Lstat(filepath.Join(b.root, "etc/ld.so.cache")); err != nil {
				t.Errorf("the cache: %v", err)
			}
			if err := unix.Unmount(b.root, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A file of the kernel is a regular file whose content is made when it is read: it may wait, as /proc/kmsg does, or consume an event.
func TestKernelFilesAreNotRead(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	b.folder("/kernel")
	proc := filepath.Join(b.root, "kernel")
	mount(t, "proc", proc, "proc", 0)
	r := b.open()
	b.link("/kernel/version", "/etc/ld.so.conf")
	if text, err := r.read("/etc/ld.so.conf", maxConf); err == nil {
		t.Errorf("a file of procfs was read: %q", text)
	}
	b.link("/kernel/kmsg", "/usr/lib64/libx.so.1")
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
	// Another procfs of the image in place of the driver's folder: no file of it has the name of the parameters.
	b.link("/kernel", "/proc/driver/nvidia")
	b.run(DisableDeviceNodeModification)
	b.write("/image/x", "")
	b.link("/kernel/kmsg", "/image/params")
	if err := os.Remove(filepath.Join(b.root, "proc/driver/nvidia")); err != nil {
		t.Fatal(err)
	}
	b.link("/image", "/proc/driver/nvidia")
	if _, err := b.try(DisableDeviceNodeModification); err == nil || !strings.Contains(err.Error(), "not of procfs") {
		t.Errorf("a link to a file of procfs: %v, want that it is not read", err)
	}
	if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

// An image with more than the limits fails at once.
func TestTooManyEntries(t *testing.T) {
	folders := strings.Repeat("/opt/lib\n", maxConfLines+1)
	b := newBundle(t)
	b.write("/etc/ld.so.conf", folders)
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), "folders and includes") {
		t.Errorf("%d folders: %v", maxConfLines+1, err)
	}
	b = newBundle(t)
	for _, name := range libraryNames(maxVariants) {
		b.folder("/usr/lib64/glibc-hwcaps/" + name)
	}
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err != nil {
		t.Errorf("%d variants: %v", maxVariants, err)
	}
	b.folder("/usr/lib64/glibc-hwcaps/another")
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), "folders of variants") {
		t.Errorf("%d variants: %v", maxVariants+1, err)
	}
}
