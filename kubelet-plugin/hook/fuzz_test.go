package hook

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// What the hooks of one container may take, whatever is in its root.
const (
	mostProcessorTime = 3 * time.Second
	mostMemory        = 64 << 20
)

// hostileArguments are the hooks of a container as in a spec.
var hostileArguments = []string{
	All, "--host-driver-version", "580.65.06", "--folder", "/usr/lib64", "--folder", "/opt/new", "--link", "libcuda.so.580::/usr/lib64/libcuda.so.1",
	"--link", "libcuda.so.1::/usr/lib64/deep/libcuda.so",
}

// hotPaths are the paths that the hooks access, and some to which links lead. A folder precedes what is in it.
var hotPaths = []string{
	"/a", "/etc", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.conf.d/a.conf", "/etc/ld.so.conf.d/00-tessera-driver.conf",
	"/etc/ld.so.conf.d/00-tessera-compat.conf", "/etc/ld.so.cache", "/etc/debian_version", "/etc/ld-musl-x86_64.path", "/lib", "/lib/ld-musl-x86_64.so.1",
	"/lib/libx.so.1", "/usr", "/usr/lib64", "/usr/lib64/libcuda.so.580", "/usr/lib64/libcuda.so.1", "/usr/lib64/liby.so", "/usr/lib64/deep",
	"/usr/lib64/glibc-hwcaps", "/usr/lib64/glibc-hwcaps/x86-64-v3", "/usr/lib64/glibc-hwcaps/x86-64-v3/libcuda.so.1", "/usr/lib", "/usr/lib/libz.so.1",
	"/usr/local/cuda/compat", "/usr/local/cuda/compat/libcuda.so.590.1.1", "/opt", "/opt/new", "/opt/new/libw.so.2", "/proc/driver/nvidia",
	"/proc/driver/nvidia/params",
}

// hostileRoot makes root file systems of malicious images from random numbers.
type hostileRoot struct {
	*testing.T
	random *rand.Rand
	// path is the folder to fill, outside a folder of the host. The folder is filled through root, so that no link leads the test out of it.
	path, outside string
	root          *os.Root
}

func newHostileRoot(t *testing.T, random *rand.Rand, path, outside string) hostileRoot {
	t.Helper()
	root, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	return hostileRoot{T: t, random: random, path: path, outside: outside, root: root}
}

// fill fills the root. What cannot be made, as below a file or a link out of the root, is left out.
func (h hostileRoot) fill() {
	for _, path := range hotPaths {
		if h.random.IntN(3) > 0 {
			_ = h.root.MkdirAll(path[1:strings.LastIndexByte(path, '/')+1]+".", 0o755)
			_ = h.node(path[1:])
		}
	}
	if h.random.IntN(40) == 0 {
		h.crowd(h.hotPath()[1:])
	}
	if err := h.root.Close(); err != nil {
		h.Fatal(err)
	}
}

// hotPath returns one of the paths.
func (h hostileRoot) hotPath() string { return hotPaths[h.random.IntN(len(hotPaths))] }

// node makes something at a path of the root.
func (h hostileRoot) node(at string) error {
	if filepath.Ext(at) == "" && h.random.IntN(8) > 0 { // the hooks end at once without most of the folders
		return h.root.Mkdir(at, 0o755)
	}
	switch choice := h.random.IntN(16); choice {
	case 0, 1, 2, 3:
		return h.root.Mkdir(at, 0o755)
	case 4, 5, 6:
		return h.root.Symlink(h.target(), at)
	case 7:
		return h.special(at, unix.S_IFIFO, 0)
	case 8:
		return h.special(at, unix.S_IFSOCK, 0)
	case 9: // needs root; opening an unassigned number fails with ENXIO
		return h.special(at, unix.S_IFCHR, int(unix.Mkdev(125, 1))) //nolint:gosec // small
	case 10:
		return h.file(at, h.library(), 1<<(10+h.random.IntN(33))) // sparse
	case 11, 12:
		return h.file(at, h.library(), 0)
	case 13:
		return h.file(at, []byte("ModifyDeviceFiles: 1\n"), 0)
	}
	return h.file(at, h.configuration(), 0)
}

// file makes a file with the content, and at least the size.
func (h hostileRoot) file(at string, content []byte, size int64) error {
	file, err := h.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if size > int64(len(content)) {
		err = errors.Join(err, file.Truncate(size))
	}
	return errors.Join(err, file.Close())
}

// special makes a special file.
func (h hostileRoot) special(at string, kind uint32, device int) error {
	folder, err := h.root.OpenFile(filepath.Dir(at), unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Mknodat(int(folder.Fd()), filepath.Base(at), kind|0o666, device), folder.Close())
}

// target returns the target of a link: in the root, out of it, itself, or a long way.
func (h hostileRoot) target() string {
	switch h.random.IntN(7) {
	case 0:
		return h.outside
	case 1:
		return strings.Repeat("../", 1+h.random.IntN(40)) + h.outside
	case 2:
		return filepath.Join(h.outside, []string{"passwd", "ld.so.cache", "libcuda.so.1", "params"}[h.random.IntN(4)])
	case 3:
		return "/" + strings.Repeat("a/../", h.random.IntN(800)) + strings.TrimPrefix(h.hotPath(), "/")
	case 4:
		return []string{".", "..", "/", "//", "/proc/self/root", "/proc/1/root" + h.outside, "/proc/self/fd/0", "/proc/kmsg", "/proc/self/mem"}[h.random.IntN(9)]
	}
	return h.hotPath()
}

// configuration returns a file of the linker's configuration, or of musl's.
func (h hostileRoot) configuration() []byte {
	var text bytes.Buffer
	most := 20
	if h.random.IntN(50) == 0 {
		most = 1000 // more than the limits
	}
	for range h.random.IntN(most) {
		switch h.random.IntN(6) {
		case 0:
			text.WriteString("include " + h.hotPath() + "\n")
		case 1:
			text.WriteString("include " + filepath.Dir(h.hotPath()) + "/*\n")
		case 2:
			text.WriteString("include [" + h.hotPath() + "*\x00\n")
		case 3:
			text.WriteString(strings.Repeat("/"+strconv.Itoa(h.random.Int()), h.random.IntN(30)) + ":")
		case 4:
			text.WriteString(h.target() + "\n")
		case 5:
			text.WriteString(h.hotPath() + "\n")
		}
	}
	return text.Bytes()
}

// library returns a shared library of which some bytes are damaged.
func (h hostileRoot) library() []byte {
	image := sharedLibrary()
	for range h.random.IntN(6) {
		at := h.random.IntN(len(image) - 8)
		binary.LittleEndian.PutUint64(image[at:], []uint64{0, 1, 1 << 16, 1 << 31, 1 << 62, ^uint64(0), h.random.Uint64()}[h.random.IntN(7)])
	}
	return image[:len(image)-h.random.IntN(len(image))/(1+h.random.IntN(8))]
}

// crowd fills a folder with thousands of names of one library, or of links.
func (h hostileRoot) crowd(folder string) {
	first := folder + "/libcrowd.so"
	if h.root.MkdirAll(folder, 0o755) != nil || h.file(first, h.library(), 0) != nil {
		return
	}
	links := h.random.IntN(2) == 0
	for i := range h.random.IntN(12000) {
		name := first + "." + strconv.Itoa(i)
		if links {
			_ = h.root.Symlink(h.target(), name)
		} else {
			_ = h.root.Link(first, name)
		}
	}
}

// sharedLibrary returns a small valid library: a header, a segment with everything, and a dynamic segment with the soname libx.so.1.
func sharedLibrary() []byte {
	const header, segments, dynamic, names = 64, 64, 176, 224
	image := make([]byte, names+16)
	copy(image, "\x7fELF\x02\x01\x01")
	put16 := func(at int, value uint16) { binary.LittleEndian.PutUint16(image[at:], value) }
	put64 := func(at int, values ...uint64) {
		for i, value := range values {
			binary.LittleEndian.PutUint64(image[at+8*i:], value)
		}
	}
	put16(16, 3)  // ET_DYN
	put16(18, 62) // EM_X86_64
	put64(32, header)
	put16(52, header)
	put16(54, 56)
	put16(56, 2)
	put64(segments, 1, 0, 0, 0, uint64(len(image)), uint64(len(image)), 4096)
	put64(segments+56, 2, dynamic, dynamic, dynamic, names-dynamic, names-dynamic, 8)
	put64(dynamic, 14, 1, 5, names, 0, 0) // DT_SONAME, DT_STRTAB, DT_NULL
	copy(image[names+1:], "libx.so.1")
	return image
}

// FuzzRoot checks that no root file system makes the hooks panic, wait or change a file outside of it.
func FuzzRoot(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		b := newBundle(t)
		h := newHostileRoot(t, rand.New(rand.NewPCG(seed, 0)), b.root, outside(t))
		h.fill()
		log, err := b.try(hostileArguments...) // a malicious image need not start
		t.Logf("%v %s", err, log)
	})
}

// rootsVariable sets the number of roots of TestHostileRoots; make test-long sets it.
const rootsVariable = "TESSERA_ROOTS"

// TestHostileRoots runs the program, as a runtime does, on generated roots with volumes and file systems of the kernel in them. Each takes bounded
// processor time and memory, and changes neither the host nor a volume.
func TestHostileRoots(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	count := 100
	if text := os.Getenv(rootsVariable); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newStage(t)
	t.Run("the largest", func(t *testing.T) { largestRoots(t, s) })
	var worst taken
	for seed := range uint64(count) { //nolint:gosec // positive
		h := newHostileRoot(t, rand.New(rand.NewPCG(seed, 1)), s.root, s.host)
		h.fill()
		unmount := h.mounts()
		worst = worst.max(s.run(fmt.Sprint("root ", seed)))
		unmount()
		s.empty()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d roots: at most %v of processor time and %d MiB", count, worst.processor.Round(time.Millisecond), worst.memory>>20)
}

// largestRoots runs the program on roots that are as large as the limits permit.
func largestRoots(t *testing.T, s stage) {
	// The longest way to a folder: forty links with as many elements as a path has.
	way := func(b bundle) string {
		b.folder("/a")
		b.folder("/opt/end")
		for i := range 38 {
			b.link("/"+strings.Repeat("a/../", 810)+"l"+strconv.Itoa(i+1), "/l"+strconv.Itoa(i))
		}
		b.link("/opt/end", "/l38")
		return "/l0"
	}
	library := func(size int) string { return string(sharedLibrary()) + strings.Repeat("\x00", size) }
	tests := map[string]func(b bundle){
		"libraries": func(b bundle) {
			b.write("/usr/lib64/libcrowd.so", library(1<<16))
			for i := range maxLibraries - 8 {
				if err := os.Link(filepath.Join(b.root, "usr/lib64/libcrowd.so"), filepath.Join(b.root, fmt.Sprintf("usr/lib64/libcrowd.so.%d", i))); err != nil {
					b.t.Fatal(err)
				}
			}
		},
		"folders": func(b bundle) {
			way := way(b)
			var text strings.Builder
			for i := range maxConfLines {
				fmt.Fprintf(&text, "%s/%d\n", way, i)
				b.folder("/opt/end/" + strconv.Itoa(i))
			}
			b.write("/etc/ld.so.conf", text.String())
		},
		"links": func(b bundle) {
			way := way(b)
			b.write("/opt/end/libx.so.1", library(0))
			for i := range maxLibraries - 8 {
				b.link(way+"/libx.so.1", fmt.Sprintf("/usr/lib64/liblink%d.so", i))
			}
		},
		"entries": func(b bundle) {
			b.folder("/usr/lib64")
			for i := range maxEntries - 100 {
				if err := unix.Mknod(filepath.Join(b.root, fmt.Sprintf("usr/lib64/entry-%d", i)), unix.S_IFREG|0o600, 0); err != nil {
					b.t.Fatal(err)
				}
			}
		},
	}
	for name, prepare := range tests {
		prepare(s.bundle)
		worst := s.run(name)
		t.Logf("%s: %v of processor time, %d MiB", name, worst.processor.Round(time.Millisecond), worst.memory>>20)
		s.empty()
	}
}

// stage is a root and a folder of the host, each in its own file system, with the built program.
type stage struct {
	bundle
	program, host string
	before        map[string]string
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{bundle: newBundle(t), program: built(t), host: t.TempDir()}
	for _, folder := range []string{s.root, s.host} {
		mount(t, "tmpfs", folder, "tmpfs", 0)
		t.Cleanup(func() {
			if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"passwd", "ld.so.cache", "params", "ld.so.conf", "00-tessera-compat.conf"} {
		if err := os.WriteFile(filepath.Join(s.host, name), []byte("the host's\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.host, "libcuda.so.1"), sharedLibrary(), 0o644); err != nil {
		t.Fatal(err)
	}
	s.before = tree(t, s.host)
	return s
}

// empty removes everything in the root.
func (s stage) empty() {
	s.t.Helper()
	entries, err := os.ReadDir(s.root)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.root, entry.Name())))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// taken is what a run of the program took: processor time, and memory in bytes.
type taken struct {
	processor time.Duration
	memory    int64
}

func (a taken) max(b taken) taken {
	return taken{max(a.processor, b.processor), max(a.memory, b.memory)}
}

// run runs the program on the root and checks what it took and that the host is unchanged. It may fail: a malicious image need not start.
func (s stage) run(what string) taken {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.program, hostileArguments...)
	cmd.Stdin = bytes.NewReader(s.state())
	out, err := cmd.CombinedOutput()
	if ended := new(exec.ExitError); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		s.t.Errorf("%s: %v\n%s", what, err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		s.t.Fatal("the system reports no usage")
	}
	t := taken{cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss << 10}
	if t.processor > mostProcessorTime || t.memory > mostMemory {
		s.t.Errorf("%s: %v of processor time, %d MiB\n%s", what, t.processor, t.memory>>20, out)
	}
	if diff := cmp.Diff(s.before, tree(s.t, s.host)); diff != "" {
		s.t.Errorf("%s: a folder of the host (-before +after):\n%s", what, diff)
	}
	return t
}

// mounts mounts the folder of the host, as a volume, and procfs at random paths of the root, and returns the function that unmounts them.
func (h hostileRoot) mounts() (unmount func()) {
	var mounted []string
	for _, source := range []string{h.outside, "proc"} {
		place := filepath.Join(h.path, h.hotPath())
		if source == "proc" && h.random.IntN(2) == 0 {
			place = filepath.Join(h.path, "proc")
		}
		var stat unix.Stat_t
		if h.random.IntN(3) > 0 || unix.Lstat(place, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR || h.leavesRoot(place) {
			continue
		}
		kind, flags := "proc", uintptr(0)
		if source != "proc" {
			kind, flags = "", unix.MS_BIND
		}
		mount(h.T, source, place, kind, flags)
		mounted = append(mounted, place)
	}
	return func() {
		for i := range mounted {
			if err := unix.Unmount(mounted[len(mounted)-1-i], unix.MNT_DETACH); err != nil {
				h.Fatal(err)
			}
		}
	}
}

// leavesRoot reports whether a path of the test leads out of the root through links.
func (h hostileRoot) leavesRoot(place string) bool {
	resolved, err := filepath.EvalSymlinks(place)
	return err != nil || resolved != place
}
