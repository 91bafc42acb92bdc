package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) disk.File {
	t.Helper()
	file, err := Open(nil, path)
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func held(t *testing.T, path string, r Range) bool {
	t.Helper()
	is, err := IsHeldAt(path, r)
	must(t, err)
	return is
}

func TestKinds(t *testing.T) {
	tests := map[string]struct {
		first, second Kind
		want          error
	}{
		"shared and shared":       {Shared, Shared, nil},
		"shared and exclusive":    {Shared, Exclusive, ErrHeld},
		"exclusive and shared":    {Exclusive, Shared, ErrHeld},
		"exclusive and exclusive": {Exclusive, Exclusive, ErrHeld},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			first, second := open(t, path), open(t, path)
			must(t, Try(first, test.first, Range{}))
			if err := Try(second, test.second, Range{}); !errors.Is(err, test.want) {
				t.Errorf("second lock: %v, want %v", err, test.want)
			}
			if !held(t, path, Range{}) {
				t.Error("the lock is not seen")
			}
			must(t, first.Close())
			must(t, Try(second, Exclusive, Range{}))
			must(t, Release(second, Range{}))
			if held(t, path, Range{}) {
				t.Error("the released lock is still seen")
			}
		})
	}
}

func TestRangesAreIndependent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	must(t, Try(first, Exclusive, Byte(0)))
	must(t, Try(second, Exclusive, Byte(1)))
	if err := Try(second, Exclusive, Byte(0)); !errors.Is(err, ErrHeld) {
		t.Errorf("byte 0 twice: %v", err)
	}
	must(t, Release(first, Byte(0)))
	if held(t, path, Byte(0)) || !held(t, path, Byte(1)) {
		t.Error("want byte 1 locked and byte 0 free")
	}
	third := open(t, path)
	if err := Try(third, Exclusive, Range{}); !errors.Is(err, ErrHeld) {
		t.Errorf("whole file with one byte locked: %v", err)
	}
}

func TestWaitReturnsWhenTheHolderCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder, waiter := open(t, path), open(t, path)
	must(t, Wait(holder, Exclusive))
	locked := make(chan error)
	go func() { locked <- Wait(waiter, Exclusive) }()
	select {
	case err := <-locked:
		t.Fatalf("two exclusive locks: %v", err)
	default:
	}
	must(t, holder.Close())
	must(t, <-locked)
}

func TestOpenExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file, err := OpenExclusive(nil, path)
	must(t, err)
	if _, err := OpenExclusive(nil, path); !errors.Is(err, ErrHeld) {
		t.Errorf("second: %v", err)
	}
	if !IsAt(file, path) {
		t.Error("the locked file is not the one at the path")
	}
	// The holder removes its file: the next one is another.
	must(t, os.Remove(path))
	if IsAt(file, path) {
		t.Error("a removed file is at its path")
	}
	next, err := OpenExclusive(nil, path)
	must(t, err)
	must(t, errors.Join(next.Close(), file.Close()))
}

// TestOpenExclusiveWhileHoldersRemoveTheirFile has two goroutines that remove the file before they release it: no two hold the path's lock.
func TestOpenExclusiveWhileHoldersRemoveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	inside, done := make(chan struct{}, 1), make(chan error, 2)
	for range 2 {
		go func() {
			for taken := 0; taken < 500; {
				file, err := OpenExclusive(nil, path)
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					done <- err
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					done <- errors.New("two holders at the same time")
					return
				}
				taken++
				<-inside
				if err := errors.Join(os.Remove(path), file.Close()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	must(t, errors.Join(<-done, <-done))
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if is, err := IsHeldAt(filepath.Join(dir, "missing"), Range{}); is || err != nil {
		t.Errorf("a file that does not exist: %t, %v", is, err)
	}
	if _, err := IsHeldAt(filepath.Join(dir, "missing", "lock"), Range{}); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if _, err := IsHeldAt(string([]byte{'a', 0}), Range{}); err == nil {
		t.Error("a path that is none: no error")
	}
	for name, openLock := range map[string]func(disk.FileSystem, string) (disk.File, error){"Open": Open, "OpenExclusive": OpenExclusive} {
		if _, err := openLock(nil, filepath.Join(dir, "missing", "lock")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := open(t, filepath.Join(dir, "lock"))
	must(t, file.Close())
	_, read := IsHeld(file, Range{})
	for name, err := range map[string]error{"Try": Try(file, Exclusive, Range{}), "Wait": Wait(file, Shared), "Release": Release(file, Range{}), "IsHeld": read} {
		if err == nil || errors.Is(err, ErrHeld) {
			t.Errorf("%s of a closed file: %v", name, err)
		}
	}
	if IsAt(file, filepath.Join(dir, "lock")) {
		t.Error("a closed file is at a path")
	}
}
