package disktest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Call is a call that changes the disk.
type Call struct {
	// Op is create, open, write, overwrite, truncate, chmod, chown, sync, syncdir, rename, remove, mkdir or chtimes. An open is of an existing file for writing. An
	// overwrite replaces bytes that the file has, whose space is not allocated again.
	Op, Path string
	// Site is where the program calls: the innermost caller outside of the port's packages.
	Site string
}

// needsSpace reports whether a full disk may refuse the call. A sync of a file may: space is allocated late.
func (c Call) needsSpace() bool {
	switch c.Op {
	case "create", "write", "sync", "mkdir":
		return true
	}
	return false
}

// Disk is a disk.FileSystem that writes to the real one. Calls for paths outside of its folder are not recorded and never fail. It is safe for concurrent
// use.
type Disk struct {
	dir string

	mutex sync.Mutex
	calls int
	// fault returns the error of a call, nil if it succeeds.
	fault func(Call) error
	// dropped is the site whose syncs have no effect.
	dropped string
	sites   map[string]bool
	history history
}

// New returns the disk of the folder, whose present content is on the disk.
func New(tb testing.TB, dir string) *Disk {
	tb.Helper()
	d := &Disk{dir: dir, sites: map[string]bool{}}
	if err := d.history.begin(dir); err != nil {
		tb.Fatal(err)
	}
	return d
}

// Dir returns the folder of the disk.
func (d *Disk) Dir() string { return d.dir }

// Folder returns a new folder, in memory where that is possible: a real disk makes syncs slow and adds nothing to their model.
func Folder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tessera-disktest-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Fail makes every later call fail for which the function returns an error; nil makes all succeed.
func (d *Disk) Fail(fault func(Call) error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.fault = fault
}

// Full makes every later call fail that needs space.
func (d *Disk) Full() { d.Fail(Full) }

// Full is the fault of a full disk.
func Full(c Call) error {
	if c.needsSpace() {
		return syscall.ENOSPC
	}
	return nil
}

// ReadOnly is the fault of a disk that is mounted read-only.
func ReadOnly(c Call) error {
	if c.Op == "sync" || c.Op == "syncdir" {
		return nil
	}
	return syscall.EROFS
}

// Broken is the fault of a disk whose calls all fail.
func Broken(Call) error { return syscall.EIO }

// Returned marks that an operation of the program has returned: what it promises to be durable must survive from now on.
func (d *Disk) Returned() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.history.returned = append(d.history.returned, len(d.history.states))
}

// Syncs returns the places that have synced, in order.
func (d *Disk) Syncs() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return slices.Sorted(maps.Keys(d.sites))
}

// call performs a call unless a fault is injected, and records its effect. halfway is performed instead of a call that fails.
func (d *Disk) call(op, path string, do func() error, record func(h *history) error, halfway func()) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !strings.HasPrefix(path, d.dir+string(filepath.Separator)) && path != d.dir {
		return do()
	}
	c := Call{Op: op, Path: path, Site: site()}
	d.calls++
	if d.fault != nil {
		if err := d.fault(c); err != nil {
			if halfway != nil {
				halfway()
			}
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
	if strings.HasPrefix(op, "sync") {
		name := c.Op + " by " + c.Site
		if c.Op == "syncdir" {
			name = c.Op + " of " + filepath.Base("."+strings.TrimPrefix(path, d.dir)) + " by " + c.Site
		}
		d.sites[name] = true
		if name == d.dropped {
			return nil
		}
	}
	if err := do(); err != nil {
		return err
	}
	return record(&d.history)
}

// site returns the innermost caller outside of this package, of the port and of atomicfile.
func site() string {
	counters := make([]uintptr, 32)
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters)])
	for {
		frame, more := frames.Next()
		if _, name, found := strings.Cut(frame.Function, "internal/host/"); !found || !strings.HasPrefix(name, "disk") && !strings.HasPrefix(name, "atomicfile.") {
			return fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return "unknown"
		}
	}
}

// OpenFile implements disk.FileSystem.
func (d *Disk) OpenFile(path string, flag int, mode fs.FileMode) (disk.File, error) {
	const writes = os.O_WRONLY | os.O_RDWR
	var file *os.File
	open := func() (err error) {
		file, err = os.OpenFile(path, flag, mode)
		return err
	}
	if flag&writes == 0 {
		if err := open(); err != nil {
			return nil, err
		}
		return &handle{File: file, disk: d, folder: flag&syscall.O_DIRECTORY != 0}, nil
	}
	op, record := "open", (*history).opened
	if _, err := os.Lstat(path); err != nil && flag&os.O_CREATE != 0 {
		op, record = "create", (*history).created
	}
	if err := d.call(op, path, open, func(h *history) error { return record(h, path) }, nil); err != nil {
		return nil, err
	}
	return &handle{File: file, disk: d}, nil
}

// Mkdir implements disk.FileSystem.
func (d *Disk) Mkdir(path string, mode fs.FileMode) error {
	return d.call("mkdir", path, func() error { return os.Mkdir(path, mode) }, func(h *history) error { return h.created(path) }, nil)
}

// Rename implements disk.FileSystem.
func (d *Disk) Rename(from, to string) error {
	return d.call("rename", from, func() error { return os.Rename(from, to) }, func(h *history) error { return h.renamed(from, to) }, nil)
}

// Remove implements disk.FileSystem.
func (d *Disk) Remove(path string) error {
	return d.call("remove", path, func() error { return os.Remove(path) }, func(h *history) error { return h.removed(path) }, nil)
}

// Chtimes implements disk.FileSystem.
func (d *Disk) Chtimes(path string, accessed, modified time.Time) error {
	return d.call("chtimes", path, func() error { return os.Chtimes(path, accessed, modified) }, func(*history) error { return nil }, nil)
}

// handle is an open file or folder of a Disk.
type handle struct {
	*os.File
	disk   *Disk
	folder bool
}

func (f *handle) written(h *history) error { return h.written(f.File) }

// Write implements disk.File. A call that fails writes half of the data.
func (f *handle) Write(data []byte) (n int, err error) {
	err = f.disk.call("write", f.Name(), func() error {
		n, err = f.File.Write(data)
		return err
	}, f.written, func() { n, _ = f.File.Write(data[:len(data)/2]) })
	return n, err
}

// WriteAt implements disk.File.
func (f *handle) WriteAt(data []byte, offset int64) (n int, err error) {
	op := "write"
	if info, err := f.Stat(); err == nil && info.Size() >= offset+int64(len(data)) {
		op = "overwrite"
	}
	err = f.disk.call(op, f.Name(), func() error {
		n, err = f.File.WriteAt(data, offset)
		return err
	}, f.written, nil)
	return n, err
}

// Truncate implements disk.File.
func (f *handle) Truncate(size int64) error {
	return f.disk.call("truncate", f.Name(), func() error { return f.File.Truncate(size) }, f.written, nil)
}

// Chmod implements disk.File.
func (f *handle) Chmod(mode fs.FileMode) error {
	return f.disk.call("chmod", f.Name(), func() error { return f.File.Chmod(mode) }, func(*history) error { return nil }, nil)
}

// Chown implements disk.File.
func (f *handle) Chown(uid, gid int) error {
	return f.disk.call("chown", f.Name(), func() error { return f.File.Chown(uid, gid) }, func(*history) error { return nil }, nil)
}

// Sync implements disk.File.
func (f *handle) Sync() error {
	op := "sync"
	if f.folder {
		op = "syncdir"
	}
	return f.disk.call(op, f.Name(), func() error { return nil }, func(h *history) error { return h.synced(f.File) }, nil)
}
