package hook

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// everyHook runs all hooks as a spec lists them and ignores their errors: a malicious image need not start, it must only
// do no harm.
func everyHook(b bundle) {
	for _, args := range [][]string{
		{CreateSymlinks, "--link", "libcuda.so.580::/usr/lib64/libcuda.so.1", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"},
		{EnableCUDACompat, "--host-driver-version=580.65.06"},
		{UpdateLDCache, "--folder", "/usr/lib64"},
		{DisableDeviceNodeModification},
	} {
		log, err := b.try(args...)
		b.t.Logf("%s: %v %s", args[0], err, log)
	}
}

// Images with links to the host at every path that a hook may access: the folder outside is not changed, whatever the
// hooks return.
func TestHostileImages(t *testing.T) {
	tests := map[string]func(b bundle, outside string){
		"the linker's folder is absolute": func(b bundle, outside string) { b.link(outside, "/etc") },
		"the linker's folder climbs":      func(b bundle, outside string) { b.link("../../../../../../../../"+outside, "/etc") },
		"the cache":                       func(b bundle, outside string) { b.link(outside+"/ld.so.cache", "/etc/ld.so.cache") },
		"the configuration":               func(b bundle, outside string) { b.link(outside+"/new.conf", "/etc/ld.so.conf") },
		"the drop-ins":                    func(b bundle, outside string) { b.link(outside, "/etc/ld.so.conf.d") },
		"a drop-in": func(b bundle, outside string) {
			b.link(outside+"/passwd", "/etc/ld.so.conf.d/00-tessera-driver.conf")
			b.link(outside+"/passwd", "/etc/ld.so.conf.d/00-tessera-compat.conf")
		},
		"the library folder": func(b bundle, outside string) { b.link(outside, "/usr/lib64") },
		"its parent":         func(b bundle, outside string) { b.link("../../../../../../../.."+outside, "/usr") },
		"the link":           func(b bundle, outside string) { b.link(outside+"/libcuda.so.1", "/usr/lib64/libcuda.so.1") },
		"a chain": func(b bundle, outside string) {
			b.link("/a", "/usr")
			b.link("b/../c", "/a")
			b.link(outside, "/c")
			b.folder("/b")
		},
		"a loop":              func(b bundle, _ string) { b.link("/b", "/etc"); b.link("/etc", "/b"); b.link("usr", "/usr") },
		"the driver's params": func(b bundle, outside string) { b.link(outside+"/params", "/proc/driver/nvidia/params") },
		"the driver's folder": func(b bundle, outside string) { b.link(outside, "/proc/driver/nvidia") },
		"compat":              func(b bundle, outside string) { b.link(outside, "/usr/local/cuda/compat") },
		"musl": func(b bundle, outside string) {
			b.write("/lib/ld-musl-x86_64.so.1", "")
			b.link(outside+"/passwd", "/etc/ld-musl-x86_64.path")
		},
		"hwcaps": func(b bundle, outside string) { b.link(outside, "/usr/lib64/glibc-hwcaps/x86-64-v3") },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			prepare(b, outside(t))
			everyHook(b)
		})
	}
}

// A file of an image must not block a hook, and a special file must not be opened: opening a device can have any effect.
func TestSpecialFilesAreNotOpened(t *testing.T) {
	for _, path := range []string{
		"/etc/ld.so.conf", "/etc/ld.so.conf.d/a.conf", "/etc/ld.so.cache", "/usr/lib64/libx.so.1",
		"/proc/driver/nvidia/params", "/usr/local/cuda/compat/libcuda.so.590.1.1",
	} {
		t.Run(path, func(t *testing.T) {
			b := newBundle(t)
			b.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
			fifo := filepath.Join(b.root, path)
			b.folder(filepath.Dir(path))
			if err := os.RemoveAll(fifo); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(fifo, 0o644); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { everyHook(b); close(done) }()
			select {
			case <-done:
			case <-time.After(5 * time.Minute): // only ends a wait without success
				t.Fatal("a hook waits for a pipe")
			}
		})
	}
}

func TestDevicesAreNotOpened(t *testing.T) {
	needRoot(t, "makes device nodes")
	b := newBundle(t)
	// Opening a node with an unassigned number fails with ENXIO, which no hook may return.
	for _, path := range []string{"/etc/ld.so.conf", "/usr/lib64/libx.so.1"} {
		b.folder(filepath.Dir(path))
		if err := unix.Mknod(filepath.Join(b.root, path), unix.S_IFCHR|0o666, int(unix.Mkdev(125, 1))); err != nil {
			t.Fatal(err)
		}
	}
	b.link("/usr/lib64/libx.so.1", "/usr/lib64/liby.so.1")
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
}

func TestUnboundedImages(t *testing.T) {
	tests := map[string]func(b bundle){
		"a configuration that includes itself": func(b bundle) {
			b.write("/etc/ld.so.conf", "include /etc/ld.so.conf\ninclude /etc/ld.so.conf\n")
		},
		"a huge configuration": func(b bundle) {
			b.write("/etc/ld.so.conf", "")
			if err := os.Truncate(filepath.Join(b.root, "etc/ld.so.conf"), 1<<40); err != nil {
				b.t.Skipf("needs a file system with sparse files: %v", err)
			}
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			prepare(b)
			if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}

// A process that shares a volume with the container replaces a folder with a link to the outside, repeatedly, while the
// hooks run in it.
func TestExchangeWhileHooksRun(t *testing.T) {
	b := newBundle(t)
	host := outside(t)
	b.folder("/usr/lib64")
	b.folder("/etc")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for _, name := range []string{"usr/lib64", "etc"} {
			if err := os.Symlink(host, filepath.Join(b.root, name)+".link"); err != nil {
				t.Error(err)
			}
		}
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, name := range []string{"usr/lib64", "etc"} {
				path := filepath.Join(b.root, name)
				if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+".link", unix.RENAME_EXCHANGE); err != nil {
					t.Errorf("exchange %s: %v", path, err)
					return
				}
			}
		}
	}()
	made := 0
	for i := range 500 {
		if _, err := b.try(CreateSymlinks, "--link", fmt.Sprintf("libcuda.so.580::/usr/lib64/lib%d.so", i)); err == nil {
			made++
		}
	}
	for range 50 {
		if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil {
			made++
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of 550 hooks met the folder and not the link", made)
}
