package disktest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Case is an operation on a fresh disk. Before is called first, without faults; State returns the state that counts, as text.
type Case struct {
	Before func() error
	Do     func() error
	State  func() (string, error)
	// Succeeds reports whether Do must succeed with the fault.
	Succeeds func(Fault) bool
	// Ignored reports whether Do may succeed although the call has failed, because it is not needed.
	Ignored func(Call) bool
}

// Fault is an injected fault.
type Fault struct {
	Error syscall.Errno
	// Lasting is a fault of all calls from one on; otherwise only one call fails.
	Lasting bool
}

// faults are the faults that are injected, with the calls that fail.
var faults = []struct {
	Fault
	of func(Call) error
}{
	{Fault{syscall.ENOSPC, false}, Full}, {Fault{syscall.ENOSPC, true}, Full}, {Fault{syscall.EROFS, false}, ReadOnly}, {Fault{syscall.EROFS, true}, ReadOnly},
	{Fault{syscall.EIO, false}, Broken}, {Fault{syscall.EIO, true}, Broken},
}

// TryFaults fails the n-th call of the operation, for every n that it has, with ENOSPC, EROFS and EIO, once and lasting. The operation returns an error
// with the path and the cause, does not panic, and when it is repeated without the fault, the state is the one without a fault, with the same files. It
// returns the number of faults.
func TryFaults(t *testing.T, start func(d *Disk) Case) (tried int) {
	t.Helper()
	clean := New(t, Folder(t))
	c := start(clean)
	must(t, c.before())
	if err := c.Do(); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	want, err := c.State()
	must(t, err)
	files := listFiles(t, clean.dir)
	for _, f := range faults {
		for n := 0; ; n++ {
			d := New(t, Folder(t))
			c := start(d)
			must(t, c.before())
			name, failed := c.tryFault(t, d, f.Fault, f.of, n)
			if !failed {
				break
			}
			tried++
			must(t, c.Do())
			if got, err := c.State(); got != want || err != nil {
				t.Errorf("%s, then repeated: %s, %v, want %s", name, got, err, want)
			}
			got := listFiles(t, d.dir)
			if f.Lasting { // it could not be removed; later, when it is old, it is
				got = slices.DeleteFunc(got, func(path string) bool { return strings.HasSuffix(path, ".tmp") })
			}
			if !slices.Equal(got, files) {
				t.Errorf("%s, then repeated: files %v, want %v", name, got, files)
			}
		}
	}
	return tried
}

// tryFault performs the operation with the fault of its n-th call, and returns the name of the call, and whether there is one.
func (c Case) tryFault(t *testing.T, d *Disk, f Fault, of func(Call) error, n int) (name string, tried bool) {
	t.Helper()
	var failed []Call
	seen := 0
	d.Fail(func(call Call) error {
		err := of(call)
		if err == nil {
			return nil
		}
		seen++
		if seen <= n || seen > n+1 && !f.Lasting {
			return nil
		}
		failed = append(failed, call)
		return err
	})
	err := c.Do()
	d.Fail(nil)
	if len(failed) == 0 {
		if err != nil {
			t.Errorf("%v: call %d does not exist: %v", f, n, err)
		}
		return "", false
	}
	name = fmt.Sprintf("%v (lasting %t) of %s %s by %s", f.Error, f.Lasting, failed[0].Op, filepath.Base(failed[0].Path), failed[0].Site)
	c.judge(t, name, f, failed, err)
	return name, true
}

func (c Case) before() error {
	if c.Before == nil {
		return nil
	}
	return c.Before()
}

// judge checks the result of the operation with a fault.
func (c Case) judge(t *testing.T, name string, f Fault, failed []Call, err error) {
	t.Helper()
	switch {
	case c.Succeeds != nil && c.Succeeds(f):
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	case err == nil && c.Ignored != nil && !slices.ContainsFunc(failed, func(call Call) bool { return !c.Ignored(call) }):
	case !errors.Is(err, f.Error):
		t.Errorf("%s: error %v", name, err)
	case !slices.ContainsFunc(failed, func(call Call) bool { return strings.Contains(err.Error(), call.Path) }):
		t.Errorf("%s: the error does not have the path: %v", name, err)
	}
}

// listFiles returns the paths in the folder.
func listFiles(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, strings.TrimPrefix(path, dir))
		return err
	}))
	return paths
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// IsFull reports whether the fault is a full disk.
func IsFull(f Fault) bool { return f.Error == syscall.ENOSPC }
