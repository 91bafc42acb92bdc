package hook

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// library builds a shared library whose function returns the text.
func (b bundle) library(path, soname, answer string) {
	b.t.Helper()
	b.folder(filepath.Dir(path))
	build(b.t, fmt.Sprintf(`const char *answer(void) { return %q; }`, answer),
		"-shared", "-fPIC", "-nostdlib", "-Wl,-soname,"+soname, "-o", filepath.Join(b.root, path))
}

func build(t *testing.T, source string, args ...string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc to build libraries")
	}
	file := filepath.Join(t.TempDir(), "source.c")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), gcc, append([]string{file}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// glibc copies this machine's dynamic linker and C library into the root, and a program that opens the library named by
// its argument and prints its text and path.
func (b bundle) glibc() {
	b.t.Helper()
	build(b.t, `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
int main(int argc, char **argv) {
	void *library = dlopen(argv[1], RTLD_NOW);
	if (!library) { puts(dlerror()); return 1; }
	struct link_map *map;
	dlinfo(library, RTLD_DI_LINKMAP, &map);
	const char *(*answer)(void) = (const char *(*)(void))dlsym(library, "answer");
	printf("%s from %s\n", answer(), map->l_name);
	return 0;
}`, "-o", filepath.Join(b.root, "ask"))
	out, err := exec.CommandContext(b.t.Context(), "ldd", filepath.Join(b.root, "ask")).Output()
	if err != nil {
		b.t.Fatalf("ldd: %v", err)
	}
	for _, field := range strings.Fields(string(out)) {
		if !strings.HasPrefix(field, "/") {
			continue
		}
		content, err := os.ReadFile(field)
		if err != nil {
			b.t.Fatal(err)
		}
		b.write(field, string(content))
		if err := os.Chmod(filepath.Join(b.root, field), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
}

// lookUp runs the program in the root, with the root's linker.
func (b bundle) lookUp(library string) string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "chroot", b.root, "/ask", library).CombinedOutput()
	if err != nil && len(out) == 0 {
		b.t.Fatalf("chroot: %v", err)
	}
	return strings.TrimSpace(string(out))
}

const driverFolder = "/opt/driver"

// The linker of the container finds the driver through the cache only: no other configuration has the driver's folder.
func TestTheLinkerFindsTheDriver(t *testing.T) {
	needRoot(t, "runs a program in another root")
	b := newBundle(t)
	b.glibc()
	b.library(driverFolder+"/libcuda.so.580.65.06", "libcuda.so.1", "driver")
	b.library(driverFolder+"/libnvidia-ml.so.580.65.06", "libnvidia-ml.so.1", "management")
	if got := b.lookUp("libcuda.so.1"); !strings.Contains(got, "cannot open shared object file") {
		t.Fatalf("before the hooks: got %q, want that the driver is not found", got)
	}
	b.run(CreateSymlinks, "--link", "libcuda.so.580.65.06::"+driverFolder+"/libcuda.so.1", "--link", "libcuda.so.1::"+driverFolder+"/libcuda.so")
	b.run(UpdateLDCache, "--folder", driverFolder)
	for library, want := range map[string]string{
		"libcuda.so.1": "driver from " + driverFolder + "/libcuda.so.1",
		// The compilers' link and a library without its link are found too.
		"libcuda.so":        "driver from " + driverFolder + "/libcuda.so",
		"libnvidia-ml.so.1": "management from " + driverFolder + "/libnvidia-ml.so.580.65.06",
	} {
		if got := b.lookUp(library); got != want {
			t.Errorf("open %s: got %q, want %q", library, got, want)
		}
	}
}

// A program gets the same libraries of its image with the driver as without: folders that the image lists precede the
// default ones of its linker, even if the driver is in one of them.
func TestTheDriverChangesNoOtherLibrary(t *testing.T) {
	needRoot(t, "runs a program in another root")
	b := newBundle(t)
	b.glibc()
	b.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
	b.write("/etc/ld.so.conf.d/libc.conf", "# default\n/usr/local/lib\n")
	b.library("/usr/local/lib/libssl.so.3", "libssl.so.3", "the image's own")
	b.library("/usr/lib64/libssl.so.3", "libssl.so.3", "the distribution's")
	b.library("/usr/lib64/libcuda.so.580.65.06", "libcuda.so.1", "driver")
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
	for library, want := range map[string]string{
		"libssl.so.3":  "the image's own from /usr/local/lib/libssl.so.3",
		"libcuda.so.1": "driver from /usr/lib64/libcuda.so.580.65.06",
	} {
		if got := b.lookUp(library); got != want {
			t.Errorf("open %s: got %q, want %q", library, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.root, driverDropIn)); !os.IsNotExist(err) {
		t.Errorf("%s: got %v, want none: the linker reads the folder", driverDropIn, err)
	}
}

// Variants of a library for newer processors remain usable.
func TestTheLinkerPrefersVariants(t *testing.T) {
	needRoot(t, "runs a program in another root")
	flags, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !strings.Contains(string(flags), "sse4_2") {
		t.Skip("needs a processor of level x86-64-v2")
	}
	b := newBundle(t)
	b.glibc()
	b.library(driverFolder+"/libfast.so.1", "libfast.so.1", "plain")
	b.library(driverFolder+"/glibc-hwcaps/x86-64-v2/libfast.so.1.2", "libfast.so.1", "level 2")
	b.library(driverFolder+"/glibc-hwcaps/x86-64-v9/libfast.so.1.2", "libfast.so.1", "level 9")
	b.run(UpdateLDCache, "--folder", driverFolder)
	want := "level 2 from " + driverFolder + "/glibc-hwcaps/x86-64-v2/libfast.so.1.2"
	if got := b.lookUp("libfast.so.1"); got != want {
		t.Errorf("open libfast.so.1: got %q, want %q", got, want)
	}
}

// A later ldconfig run in the container keeps the driver.
func TestALaterLdconfigFindsTheDriver(t *testing.T) {
	needRoot(t, "runs ldconfig on another root")
	b := newBundle(t)
	b.glibc()
	b.library(driverFolder+"/libcuda.so.1", "libcuda.so.1", "driver")
	b.run(UpdateLDCache, "--folder", driverFolder)
	if out, err := exec.CommandContext(t.Context(), "ldconfig", "-r", b.root).CombinedOutput(); err != nil {
		t.Fatalf("ldconfig: %v\n%s", err, out)
	}
	if got, want := b.lookUp("libcuda.so.1"), "driver from "+driverFolder+"/libcuda.so.1"; got != want {
		t.Errorf("open libcuda.so.1: got %q, want %q", got, want)
	}
}

// The cache equals the one of glibc's ldconfig, for a root with every case that makes a difference.
func TestTheCacheIsLdconfigs(t *testing.T) {
	needRoot(t, "runs ldconfig on another root")
	b := newBundle(t)
	lib := "/usr/lib/x86_64-linux-gnu"
	b.write("/etc/debian_version", "12.0\n")
	b.write("/etc/ld.so.conf", "/opt/a\ninclude /etc/ld.so.conf.d/*.conf\n/opt/b\n")
	b.write("/etc/ld.so.conf.d/2.conf", "/opt/two/ # with a slash\n")
	b.write("/etc/ld.so.conf.d/1.conf", "/opt/one\n/opt/nowhere\n")
	b.write("/etc/ld.so.conf.d/no.txt", "/opt/c\n")
	b.link("usr/lib", "/lib")
	b.library(lib+"/libplain.so.1.2.3", "libplain.so.1", "")
	b.link("libplain.so.1.2.3", lib+"/libplain.so.1")
	b.link("libplain.so.1", lib+"/libplain.so")
	b.library(lib+"/libtwo.so.1.9", "libtwo.so.1", "")
	b.library(lib+"/libtwo.so.1.10", "libtwo.so.1", "")
	b.link("libtwo.so.1.10", lib+"/libtwo.so.1")
	b.library(lib+"/deep/libblas.so.3", "libblas.so.3", "")
	b.link(lib+"/deep/libblas.so.3", "/etc/alternatives/blas")
	b.link("/etc/alternatives/blas", lib+"/libblas.so.3")
	b.library(lib+"/libnoname.so.5", "libnoname.so.5", "")
	build(t, "int x;", "-shared", "-fPIC", "-nostdlib", "-o", filepath.Join(b.root, lib, "libnosoname.so"))
	b.library("/opt/one/libplain.so.1", "libplain.so.1", "")
	b.library("/opt/two/libodd-name.so", "libother.so.4", "")
	b.link("libodd-name.so", "/opt/two/libother.so.4")
	b.library("/opt/a/glibc-hwcaps/x86-64-v3/libfast.so.1.0", "libfast.so.1", "")
	b.library("/opt/c/libnever.so.1", "libnever.so.1", "")
	b.write(lib+"/libtext.so", "GROUP ( libplain.so.1 )\n")
	b.write(lib+"/libempty.so.1", "")
	b.link("nowhere", lib+"/libdangling.so.1")
	b.folder(lib + "/libfolder.so.1")

	b.run(UpdateLDCache, "--folder", lib)
	got := cached(t, filepath.Join(b.root, cachePath))
	if out, err := exec.CommandContext(t.Context(), "ldconfig", "-X", "-r", b.root).CombinedOutput(); err != nil {
		t.Fatalf("ldconfig: %v\n%s", err, out)
	}
	want := cached(t, filepath.Join(b.root, cachePath))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cache (-ldconfig +ours):\n%s", diff)
	}
}

// cached returns the libraries of a cache in its order.
func cached(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldconfig", "-p", "-C", path).Output()
	if err != nil {
		t.Fatalf("ldconfig -p: %v", err)
	}
	var libraries []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "=>") {
			libraries = append(libraries, strings.TrimSpace(line))
		}
	}
	if len(libraries) == 0 {
		t.Fatalf("ldconfig -p lists no library: %s", out)
	}
	return libraries
}

// Images without a linker, without /etc, or empty.
func TestEmptyImages(t *testing.T) {
	b := newBundle(t)
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
	want := map[string]string{
		".": "d---------", "etc": "d---------",
		"etc/ld.so.conf":  "include /etc/ld.so.conf.d/*.conf\n",
		"etc/ld.so.cache": string(ldso.Encode(nil)),
	}
	if diff := cmp.Diff(want, tree(t, b.root)); diff != "" {
		t.Errorf("the root (-want +got):\n%s", diff)
	}
	before := tree(t, b.root)
	b.run(UpdateLDCache, "--folder", "/usr/lib64")
	if diff := cmp.Diff(before, tree(t, b.root)); diff != "" {
		t.Errorf("a second run (-before +after):\n%s", diff)
	}
}

func TestMusl(t *testing.T) {
	tests := map[string]struct {
		path string
		want string
	}{
		"without a path":    {"", "/lib\n/usr/local/lib\n/usr/lib\n/opt/driver\n"},
		"with a path":       {"/lib:/usr/lib\n/usr/local/lib\n", "/lib\n/usr/lib\n/usr/local/lib\n/opt/driver\n"},
		"with the driver's": {"/opt/driver:/lib", "/opt/driver:/lib"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.write("/lib/ld-musl-x86_64.so.1", "")
			if test.path != "" {
				b.write("/etc/ld-musl-x86_64.path", test.path)
			}
			b.run(UpdateLDCache, "--folder", driverFolder)
			if got := b.read("/etc/ld-musl-x86_64.path"); got != test.want {
				t.Errorf("search path: got %q, want %q", got, test.want)
			}
		})
	}
}

// The driver is in the folders of its host's distribution. The image may be of another distribution, whose ldconfig
// needs the folder listed; its own folders need not be listed.
func TestDistributions(t *testing.T) {
	for _, test := range []struct {
		image, folder string
		added         bool
	}{
		{"debian", "/usr/lib/x86_64-linux-gnu", false},
		{"debian", "/usr/lib64", true},
		{"fedora", "/usr/lib/x86_64-linux-gnu", true},
		{"fedora", "/usr/lib64", false},
	} {
		b := newBundle(t)
		b.folder(test.folder)
		b.write("/etc/"+test.image+"_version", "12\n")
		b.run(UpdateLDCache, "--folder", test.folder)
		_, err := os.Lstat(filepath.Join(b.root, driverDropIn))
		if added := err == nil; added != test.added {
			t.Errorf("%s in an image of %s: added %v, want %v", test.folder, test.image, added, test.added)
		}
	}
}

func TestTheDriversFolderIsAddedOnce(t *testing.T) {
	b := newBundle(t)
	b.write("/etc/ld.so.conf", "/opt/listed\n/usr/lib64\n")
	b.folder("/opt/listed")
	b.folder("/usr/lib64")
	b.link("/opt/listed", "/opt/same")
	b.folder("/opt/new")
	b.link("/opt/new", "/opt/newer")
	b.run(UpdateLDCache, "--folder", "/opt/listed", "--folder", "/opt/same", "--folder", "/lib64", "--folder", "/opt/new", "--folder", "/opt/new",
		"--folder", "/opt/newer")
	got := strings.Fields(b.read(driverDropIn))
	if want := []string{"/opt/new"}; !slices.Equal(got, want) {
		t.Errorf("the drop-in lists %q, want %q", got, want)
	}
}
