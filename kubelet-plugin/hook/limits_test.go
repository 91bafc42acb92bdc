package hook

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// An image at a limit of the linker's configuration is accepted, one above it is refused.
func TestLimitsOfTheConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		limit   int
		prepare func(b bundle, number int)
	}{
		"folders": {maxConfLines, func(b bundle, number int) {
			b.write(confPath, strings.Repeat("/opt/lib\n", number))
		}},
		"files": {maxConfFiles, func(b bundle, number int) {
			b.write(confPath, "include d/*.conf\n")
			for i := range number - 1 {
				b.write(fmt.Sprintf("/etc/d/%d.conf", i), "")
			}
		}},
		"files in each other": {maxConfDepth, func(b bundle, number int) {
			b.write(confPath, "include 1.conf\n")
			for i := range number {
				b.write(fmt.Sprintf("/etc/%d.conf", i+1), fmt.Sprintf("include %d.conf\n", i+2))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			test.prepare(b, test.limit)
			if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err != nil {
				t.Errorf("%d: %v", test.limit, err)
			}
			b = newBundle(t)
			test.prepare(b, test.limit+1)
			if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), confPath) {
				t.Errorf("%d: got %v, want an error that names %s", test.limit+1, err, confPath)
			}
		})
	}
}

// Libraries are counted in all folders together, and variants of libraries are libraries.
func TestLimitOfLibraries(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // in memory, the files take a tenth of a second
	b := newBundle(t)
	for i := range maxLibraries {
		b.link("x", fmt.Sprintf("/usr/lib64/glibc-hwcaps/x86-64-v3/lib%d.so", i))
	}
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
	b.link("x", "/usr/lib64/libx.so")
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), "libraries") {
		t.Errorf("%d libraries: got %v, want an error", maxLibraries+1, err)
	}
}

// The drop-in of the compatibility libraries is bounded as well.
func TestLargeCompatDropIn(t *testing.T) {
	b := newBundle(t)
	b.write(compatDropIn, strings.Repeat("#", maxConf+1))
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), compatDropIn) {
		t.Errorf("got %v, want an error that names %s", err, compatDropIn)
	}
}

// Each list of a folder with more entries than the limit fails, or is a warning.
func TestCrowdedFolder(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // in memory, the entries take a second
	crowd := newBundle(t)
	crowd.folder("/crowd")
	for i := range maxEntries + 1 {
		if err := os.Symlink("x", filepath.Join(crowd.root, "crowd", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	update, enable := []string{UpdateLDCache, "--folder", "/usr/lib64"}, []string{EnableCUDACompat, "--host-driver-version=580.65.06"}
	for _, test := range []struct {
		at   string
		args []string
	}{{"/usr/lib64", update}, {"/usr/lib64/glibc-hwcaps", update}, {"/etc/ld.so.conf.d", update}, {"/usr/local/cuda/compat", enable}} {
		crowd.folder(path.Dir(test.at))
		crowd.write(confPath, "include /etc/ld.so.conf.d/*.conf\n")
		crowd.link("/crowd", test.at)
		log, err := crowd.try(test.args...)
		if (err == nil || !strings.Contains(err.Error(), "more than")) && !strings.Contains(log, "more than") {
			t.Errorf("%s: %v, logged %q", test.at, err, log)
		}
		if err := os.Remove(filepath.Join(crowd.root, test.at)); err != nil {
			t.Fatal(err)
		}
	}
}

// A hook opens many files, and a process has few descriptors.
func TestNoDescriptorStaysOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // finalizers would close them
	b := newBundle(t)
	b.write("/etc/debian_version", "12")
	b.write(confPath, "include /etc/ld.so.conf.d/*.conf\n")
	b.write("/etc/ld.so.conf.d/libc.conf", "/usr/local/lib\n")
	b.write("/usr/local/lib/libx.so.1", string(sharedLibrary()))
	b.link("../../lib64/glibc-hwcaps/x86-64-v3/liby.so.1", "/usr/local/lib/liby.so")
	b.write("/usr/lib64/glibc-hwcaps/x86-64-v3/liby.so.1", string(sharedLibrary()))
	b.write(compatFolder+"/libcuda.so.590.10.01", string(compatLibrary(t, `{"Format":1,"CUDA Version":"13.0","Driver":[580],"Device":[1]}`)))
	everyHook(b) // opens what the process keeps
	checkDescriptors := keepsDescriptors(t)
	everyHook(b)
	checkDescriptors()
}

// The processor time counts from the moment when the root was opened.
func TestProcessorTimeIsLimited(t *testing.T) {
	now, err := processorTime()
	if err != nil || now <= 0 {
		t.Fatalf("the process has spent %v, error %v", now, err)
	}
	if err := (root{began: now}).checkTime(); err != nil {
		t.Errorf("at the start: %v", err)
	}
	if err := (root{began: now - maxProcessorTime - 1}).checkTime(); err == nil || !strings.Contains(err.Error(), "processor time") {
		t.Errorf("after %v: got %v, want an error", maxProcessorTime, err)
	}
}
