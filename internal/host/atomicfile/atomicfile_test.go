package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	must(t, err)
	return string(text)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

var errInjected = errors.New("injected")

// faulty is the host's file system with a fault at one call. A failing write writes half of the data first.
type faulty struct {
	disk.Host
	failAt string
	failed map[string]bool
	calls  []string
}

func (f *faulty) fail(call string) error {
	f.calls = append(f.calls, call)
	if call != f.failAt {
		return nil
	}
	f.failed[call] = true
	return errInjected
}

func (f *faulty) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	kind := "file"
	if flag&syscall.O_DIRECTORY != 0 {
		kind = "folder"
	}
	if err := f.fail("open " + kind); err != nil {
		return nil, err
	}
	file, err := f.Host.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, kind: kind}, nil
}

func (f *faulty) Rename(from, to string) error {
	if err := f.fail("rename"); err != nil {
		return err
	}
	return f.Host.Rename(from, to)
}

func (f *faulty) Remove(path string) error {
	if err := f.fail("remove"); err != nil {
		return err
	}
	return f.Host.Remove(path)
}

type faultyFile struct {
	disk.File
	fs   *faulty
	kind string
}

func (f *faultyFile) Write(data []byte) (int, error) {
	if err := f.fs.fail("write " + f.kind); err != nil {
		n, _ := f.File.Write(data[:len(data)/2])
		return n, err
	}
	return f.File.Write(data)
}

func (f *faultyFile) Chmod(mode fs.FileMode) error {
	if err := f.fs.fail("chmod " + f.kind); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.fail("sync " + f.kind); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Close() error {
	return errors.Join(f.fs.fail("close "+f.kind), f.File.Close())
}

// TestWriteFaults fails each call of a write once: the file has its old or its new content, the error is returned, and the temporary file
// is removed.
func TestWriteFaults(t *testing.T) {
	const before, after = "old", "much newer"
	tests := []struct {
		failAt string
		want   string
	}{
		{"open file", before}, {"write file", before}, {"chmod file", before}, {"sync file", before}, {"close file", before}, {"rename", before},
		{"open folder", after}, {"sync folder", after}, {"close folder", after},
	}
	for _, single := range []bool{true, false} {
		for _, existing := range []string{before, ""} {
			covered := map[string]bool{"remove": true}
			for _, test := range tests {
				covered[test.failAt] = true
				t.Run(fmt.Sprintf("%s of %q, single writer %t", test.failAt, existing, single), func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "record.json")
					want := test.want
					if existing == "" {
						want = strings.TrimPrefix(want, before)
					} else {
						must(t, os.WriteFile(path, []byte(existing), 0o600))
					}
					fsys := &faulty{failAt: test.failAt, failed: map[string]bool{}}
					err := Write(path, []byte(after), Options{Mode: 0o600, SingleWriter: single, Files: fsys})
					if !errors.Is(err, errInjected) || !fsys.failed[test.failAt] {
						t.Errorf("Write: %v, calls %v", err, fsys.calls)
					}
					if got := content(t, path); got != want {
						t.Errorf("content %q, want %q", got, want)
					}
					for _, name := range names(t, filepath.Dir(path)) {
						if name != "record.json" {
							t.Errorf("%s was left behind", name)
						}
					}
				})
			}
			fsys := &faulty{}
			must(t, Write(filepath.Join(t.TempDir(), "record.json"), []byte(after), Options{Mode: 0o600, SingleWriter: single, Files: fsys}))
			for _, call := range fsys.calls {
				if !covered[call] {
					t.Errorf("%s never fails in this test", call)
				}
			}
		}
	}
}

// TestWriteReportsLeftover fails the removal of the temporary file after a failed write: both errors are returned, and the next write
// of a single writer uses the same name.
func TestWriteReportsLeftover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	pending, err := Create(path, Options{Mode: 0o600, SingleWriter: true, Files: &faulty{failAt: "remove", failed: map[string]bool{}}})
	must(t, err)
	if _, err := pending.Write([]byte("a longer content that was never committed")); err != nil {
		t.Fatal(err)
	}
	if err := pending.Abort(); !errors.Is(err, errInjected) {
		t.Errorf("Abort: %v", err)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 || got[0] != filepath.Base(TemporaryPath(path)) {
		t.Errorf("files %v", got)
	}
	must(t, Write(path, []byte("short"), Options{Mode: 0o600, SingleWriter: true}))
	if got := names(t, filepath.Dir(path)); len(got) != 1 || content(t, path) != "short" {
		t.Errorf("files %v with %q", got, content(t, path))
	}
}

func TestWriteSyncsInOrder(t *testing.T) {
	fsys := &faulty{}
	must(t, Write(filepath.Join(t.TempDir(), "file"), []byte("text"), Options{Mode: 0o644, Files: fsys}))
	want := "open file, write file, chmod file, sync file, close file, rename, open folder, sync folder, close folder"
	if got := strings.Join(fsys.calls, ", "); got != want {
		t.Errorf("calls: %s, want %s", got, want)
	}
}

func TestWriteMode(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	mode := func() fs.FileMode {
		info, err := os.Stat(path)
		must(t, err)
		return info.Mode()
	}
	must(t, Write(path, nil, Options{Mode: 0o644, Like: path}))
	if got := mode(); got != 0o644 {
		t.Errorf("new file: mode %o, want 644 in spite of the umask", got)
	}
	must(t, os.Chmod(path, 0o640))
	must(t, Write(path, nil, Options{Mode: 0o644, Like: path}))
	if got := mode(); got != 0o640 {
		t.Errorf("Like: mode %o, want 640", got)
	}
	must(t, Write(path, nil, Options{Mode: 0o600}))
	if got := mode(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
}

func TestWriteKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners")
	}
	path := filepath.Join(t.TempDir(), "file")
	for _, owner := range [][2]int{{7, 8}, {0, 8}} {
		must(t, Write(path, nil, Options{Mode: 0o644}))
		must(t, os.Chown(path, owner[0], owner[1]))
		must(t, Write(path, []byte("text"), Options{Mode: 0o644, Like: path}))
		info, err := os.Stat(path)
		must(t, err)
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(stat.Uid) != owner[0] || int(stat.Gid) != owner[1] {
			t.Errorf("owner %+v, want %v", stat, owner)
		}
	}
}

// TestWriteFollowsNoLink puts a link to another file under the temporary name.
func TestWriteFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	must(t, os.WriteFile(other, []byte("other"), 0o600))
	must(t, os.Symlink(other, TemporaryPath(path)))
	if err := Write(path, []byte("text"), Options{Mode: 0o600, SingleWriter: true}); err == nil {
		t.Error("wrote through a link")
	}
	if got := content(t, other); got != "other" {
		t.Errorf("the link's target has %q", got)
	}
}

func TestConcurrentWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	texts := []string{strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<15)}
	var writers sync.WaitGroup
	for i := range 16 {
		writers.Go(func() {
			if err := Write(path, []byte(texts[i%2]), Options{Mode: 0o600}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got := content(t, path); got != texts[0] && got != texts[1] {
		t.Error("two writes were mixed")
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("files %v", got)
	}
}

func TestTemporaryGlob(t *testing.T) {
	dir := t.TempDir()
	for _, options := range []Options{{Mode: 0o600}, {Mode: 0o600, SingleWriter: true}} {
		if _, err := Create(filepath.Join(dir, "tessera-claim.json"), options); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "tessera-claim.json"), nil, 0o600))
	found, err := filepath.Glob(TemporaryGlob(filepath.Join(dir, "tessera-*")))
	must(t, err)
	if len(found) != 2 {
		t.Errorf("found %v of %v", found, names(t, dir))
	}
}

func TestWriteWithoutFolder(t *testing.T) {
	for _, single := range []bool{true, false} {
		err := Write(filepath.Join(t.TempDir(), "missing", "file"), nil, Options{SingleWriter: single})
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	must(t, os.WriteFile(second, nil, 0o600))
	fsys := &faulty{}
	must(t, Remove(Options{Files: fsys}, first, second))
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left %v", got)
	}
	if got := strings.Join(fsys.calls, ", "); got != "remove, remove, open folder, sync folder, close folder" {
		t.Errorf("calls: %s", got)
	}
	fsys = &faulty{}
	must(t, Remove(Options{Files: fsys}, first))
	if got := strings.Join(fsys.calls, ", "); got != "remove, open folder, sync folder, close folder" {
		t.Errorf("calls: %s: an earlier process may have removed the file and ended before the sync", got)
	}
	for _, call := range []string{"remove", "open folder", "sync folder", "close folder"} {
		must(t, os.WriteFile(first, nil, 0o600))
		if err := Remove(Options{Files: &faulty{failAt: call, failed: map[string]bool{}}}, first); !errors.Is(err, errInjected) {
			t.Errorf("%s failed: %v", call, err)
		}
	}
}

func TestVolatileFilesAreNotSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	fsys := &faulty{}
	options := Options{Mode: 0o644, Volatile: true, Files: fsys}
	must(t, Write(path, []byte("text"), options))
	must(t, Remove(options, path))
	if got := strings.Join(fsys.calls, ", "); got != "open file, write file, chmod file, close file, rename, remove" {
		t.Errorf("calls: %s", got)
	}
}
