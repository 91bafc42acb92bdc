package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// healthName is the file of the GPUs' health; lockName is locked while the file is read or written.
const (
	healthName = "health" + suffix
	lockName   = ".lock"
)

// Health persists the health of the node's GPUs in a folder, like Store: one file with a checksum, which is always
// complete and in which the unknown fields of other versions are kept. It is safe for concurrent use, also by several
// processes over the same folder.
type Health struct {
	dir    string
	report func(path string, err error)
	files  disk.FileSystem
}

// OpenHealth returns the health in the folder, which is created if it is missing. report is called for a damaged file,
// with its present path and the reason.
func OpenHealth(files disk.FileSystem, dir string, report func(path string, err error)) (*Health, error) {
	if err := disk.MakeDurableFolder(files, dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the GPU health record: %w", err)
	}
	return &Health{files: files, dir: dir, report: report}, nil
}

// LoadHealth returns the saved health; the zero value if there is none. A damaged file is set aside and reported, and
// the zero value is returned. A file of a newer agent that this version cannot read stays and is an error.
func (h *Health) LoadHealth() (_ gpu.Health, err error) {
	unlock, err := h.lock()
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load the GPU health record: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	data, err := os.ReadFile(h.path())
	if errors.Is(err, fs.ErrNotExist) {
		return gpu.Health{}, nil
	}
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load the GPU health record: %w", err)
	}
	loaded, err := decodeHealth(data)
	if errors.Is(err, errDamaged) {
		err = h.setAsideDamaged(err)
	}
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load the GPU health record: %w", err)
	}
	return loaded, nil
}

// SaveHealth writes the health if leads returns true, and returns whether it has, once that is durable. leads is called
// with the lock held: a write that waited for the lock, or for the disk, until another agent became the leader never
// replaces what that agent has loaded or saved.
func (h *Health) SaveHealth(health gpu.Health, leads func() bool) (saved bool, err error) {
	unlock, err := h.lock()
	if err != nil {
		return false, fmt.Errorf("save the GPU health record: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if !leads() {
		return false, nil
	}
	old, err := os.ReadFile(h.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("save the GPU health record: %w", err)
	}
	data, err := encodeHealth(health, old)
	if err == nil {
		err = atomicfile.Write(h.path(), data, fileOptions(h.files))
	}
	if err != nil {
		return false, fmt.Errorf("save the GPU health record: %w", err)
	}
	return true, nil
}

func (h *Health) path() string { return filepath.Join(h.dir, healthName) }

// setAsideDamaged renames the damaged file and reports it. The caller holds the lock.
func (h *Health) setAsideDamaged(why error) error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return err
	}
	number := 1
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), healthName+aside) {
			number++
		}
	}
	path := fmt.Sprintf("%s%s%d", h.path(), aside, number)
	// Not synced: after a power failure, a damaged file in its place is set aside again.
	if err := disk.Or(h.files).Rename(h.path(), path); err != nil {
		return err
	}
	h.report(path, why)
	return nil
}

// lock excludes other processes and goroutines from the file until unlock is called. The kernel releases the lock of a
// process that dies.
func (h *Health) lock() (unlock func() error, err error) {
	file, err := lock.Open(h.files, filepath.Join(h.dir, lockName))
	if err != nil {
		return nil, err
	}
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}
