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
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// healthName is the file of what is remembered of the GPUs' health; lockName is locked while it is written.
const (
	healthName = "health" + suffix
	lockName   = ".lock"
)

// Health keeps what is remembered of the health of the node's GPUs in a folder, in the manner of records: one file with a checksum, which is
// always either the old or the new one, and in which what another version wrote survives. It is safe for concurrent use, also by several
// processes over the same folder.
type Health struct {
	dir    string
	report func(path string, err error)
	// files is the file system of writes; nil means that of the process.
	files atomicfile.FileSystem
}

// OpenHealth returns what is kept in the folder, which is created when it is missing. A file that cannot be read is reported, with where it
// lies now and why.
func OpenHealth(dir string, report func(path string, err error)) (*Health, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open what is remembered of the GPUs' health: %w", err)
	}
	return &Health{dir: dir, report: report}, nil
}

// LoadHealth returns what was saved last, the zero value when nothing was. A damaged file is set aside and reported, and then nothing was. One
// of a newer agent, which says that this one cannot read it, stays and is an error.
func (h *Health) LoadHealth() (_ gpu.Health, err error) {
	unlock, err := h.lock()
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load what is remembered of the GPUs' health: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	data, err := os.ReadFile(h.path())
	if errors.Is(err, fs.ErrNotExist) {
		return gpu.Health{}, nil
	}
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load what is remembered of the GPUs' health: %w", err)
	}
	loaded, err := decodeHealth(data)
	if errors.Is(err, errDamaged) {
		err = h.setAsideDamaged(err)
	}
	if err != nil {
		return gpu.Health{}, fmt.Errorf("load what is remembered of the GPUs' health: %w", err)
	}
	return loaded, nil
}

// SaveHealth writes what is remembered, if leads says so, and returns whether it did, after it is on the disk. Leads is asked while nobody else can
// read or write: a write that waited for the lock, or for the disk, until another agent led never replaces what that one has loaded or saved.
func (h *Health) SaveHealth(health gpu.Health, leads func() bool) (saved bool, err error) {
	unlock, err := h.lock()
	if err != nil {
		return false, fmt.Errorf("save what is remembered of the GPUs' health: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if !leads() {
		return false, nil
	}
	old, err := os.ReadFile(h.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("save what is remembered of the GPUs' health: %w", err)
	}
	data, err := encodeHealth(health, old)
	if err == nil {
		err = atomicfile.Write(h.path(), data, fileOptions(h.files))
	}
	if err != nil {
		return false, fmt.Errorf("save what is remembered of the GPUs' health: %w", err)
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
	if err := os.Rename(h.path(), path); err != nil {
		return err
	}
	h.report(path, why)
	return atomicfile.SyncFolder(fileOptions(h.files), h.dir)
}

// lock excludes other processes and goroutines from the file until unlock is called. The kernel unlocks it for a process that dies.
func (h *Health) lock() (unlock func() error, err error) {
	file, err := lock.Open(filepath.Join(h.dir, lockName))
	if err != nil {
		return nil, err
	}
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file.Close, nil
}
