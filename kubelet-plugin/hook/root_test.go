package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// bundle is a container in the layout of a runtime, with a root file system to fill.
type bundle struct {
	t    *testing.T
	path string
	root string
}

func newBundle(t *testing.T) bundle {
	t.Helper()
	path := t.TempDir()
	b := bundle{t: t, path: path, root: filepath.Join(path, "rootfs")}
	if err := os.Mkdir(b.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "config.json"), []byte(`{"ociVersion":"1.2.0","root":{"path":"rootfs"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// open opens the root until the test ends.
func (b bundle) open() root {
	b.t.Helper()
	r, err := openRoot(b.root)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(r.close)
	return r
}

// state is what a runtime writes to a hook.
func (b bundle) state() []byte {
	text, err := json.Marshal(map[string]any{"ociVersion": "1.2.0", "id": "c1", "status": "creating", "pid": 1, "bundle": b.path})
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// try runs a hook and returns what it logged.
func (b bundle) try(args ...string) (string, error) {
	b.t.Helper()
	var log bytes.Buffer
	err := Run(args, bytes.NewReader(b.state()), &log)
	return log.String(), err
}

// run runs a hook that must succeed without a log message.
func (b bundle) run(args ...string) {
	b.t.Helper()
	log, err := b.try(args...)
	if err != nil || log != "" {
		b.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, log)
	}
}

func (b bundle) folder(path string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Join(b.root, path), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func (b bundle) write(path, text string) {
	b.t.Helper()
	b.folder(filepath.Dir(path))
	if err := os.WriteFile(filepath.Join(b.root, path), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b bundle) link(target, path string) {
	b.t.Helper()
	b.folder(filepath.Dir(path))
	if err := os.Symlink(target, filepath.Join(b.root, path)); err != nil {
		b.t.Fatal(err)
	}
}

func (b bundle) read(path string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.root, path))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// tree returns every path below the folder with its content: a link's target, a file's content.
func tree(t *testing.T, top string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		switch {
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		case entry.Type().IsRegular():
			text, err := os.ReadFile(path)
			found[name] = string(text)
			return err
		default:
			found[name] = entry.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// outside returns a folder of the host with a file in it. The test fails if anything in it changes.
func outside(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"passwd", "ld.so.cache", "libcuda.so.1", "params"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("the host's"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, folder)
	t.Cleanup(func() {
		if diff := cmp.Diff(before, tree(t, folder)); diff != "" {
			t.Errorf("a folder outside the container (-before +after):\n%s", diff)
		}
	})
	return folder
}

func needRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: " + why)
	}
}

func TestRun(t *testing.T) {
	b := newBundle(t)
	tests := map[string]struct {
		args  []string
		state string
		log   string
		err   string
	}{
		"no hook":              {nil, "", "", "name a hook"},
		"a hook of the future": {[]string{"update-vulkan", "--x"}, "", "unknown hook", ""},
		"an unknown flag":      {[]string{CreateSymlinks, "--colour", "red"}, string(b.state()), "not defined", "not defined"},
		"an argument":          {[]string{CreateSymlinks, "x"}, string(b.state()), "", `"x"`},
		"no state":             {[]string{CreateSymlinks}, "", "", "state"},
		"no bundle":            {[]string{CreateSymlinks}, `{"bundle":""}`, "", "bundle"},
		"a missing bundle":     {[]string{CreateSymlinks}, `{"bundle":"/nowhere"}`, "", "/nowhere/config.json"},
		"a broken link flag":   {[]string{CreateSymlinks, "--link", "a:b"}, string(b.state()), "", "TARGET::PATH"},
		"nothing to do":        {[]string{CreateSymlinks}, string(b.state()), "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			err := Run(test.args, strings.NewReader(test.state), &log)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("Run: got error %v, want %q", err, test.err)
			}
			if !strings.Contains(log.String(), test.log) {
				t.Errorf("Run: logged %q, want %q", log.String(), test.log)
			}
		})
	}
}

func TestTheHostsRootIsRefused(t *testing.T) {
	for _, path := range []string{"/", "//", "/usr/..", ""} {
		b := newBundle(t)
		config, err := json.Marshal(map[string]any{"root": map[string]string{"path": path}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.path, "config.json"), config, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.try(CreateSymlinks); err == nil {
			t.Errorf("root %q: got no error, want one", path)
		}
	}
}

func TestWriteIsAtomicAndIdempotent(t *testing.T) {
	b := newBundle(t)
	r := b.open()
	inode := func() uint64 {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(b.root, "etc/file"), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Ino
	}
	write := func(text string) uint64 {
		if err := r.write("/etc/file", []byte(text)); err != nil {
			t.Fatal(err)
		}
		return inode()
	}
	first := write("one")
	if again := write("one"); again != first {
		t.Error("the same content was written again")
	}
	if second := write("two"); second == first {
		t.Error("new content was written into the old file, want a new one in its place")
	}
	if diff := cmp.Diff(map[string]string{".": "d---------", "etc": "d---------", "etc/file": "two"}, tree(t, b.root)); diff != "" {
		t.Errorf("the root (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(b.root, "etc/file"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode: got %v, %v, want 0644", info.Mode(), err)
	}
}

// Only a missing file is as if it had been removed.
func TestRemove(t *testing.T) {
	b := newBundle(t)
	b.write("/etc/file", "")
	b.write("/etc/other", "")
	b.folder("/etc/folder")
	r := b.open()
	for name, want := range map[string]error{"/etc/file": nil, "/etc/none": nil, "/none/none": nil, "/etc/folder": unix.EISDIR, "/etc/other/x": unix.ENOTDIR} {
		if err := r.remove(name); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

// A file on a volume is not removed, and one that is not there needs no removal.
func TestRemoveOnAVolume(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	b := newBundle(t)
	b.folder("/etc")
	volume := filepath.Join(b.root, "etc")
	mount(t, t.TempDir(), volume, "", unix.MS_BIND)
	b.write("/etc/file", "")
	r := b.open()
	for name, want := range map[string]error{"/etc/file": unix.EXDEV, "/etc/none": nil} {
		if err := r.remove(name); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if err := unix.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
}

// TestReadAt checks the contract of io.ReaderAt on a file.
func TestReadAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, test := range []struct {
		at, size int
		want     string
		err      error
	}{{0, 5, "12345", nil}, {1, 2, "23", nil}, {3, 3, "45", io.EOF}, {5, 1, "", io.EOF}} {
		text := make([]byte, test.size)
		n, err := descriptor(file.Fd()).ReadAt(text, int64(test.at))
		if string(text[:n]) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%d bytes at %d: got %q, %v, want %q, %v", test.size, test.at, text[:n], err, test.want, test.err)
		}
	}
}
