package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Options describe how a file is replaced.
type Options struct {
	// Mode is the mode of the new file, whatever the umask.
	Mode fs.FileMode
	// Like gives the new file the mode and the owner of the file at this path, if there is one: the path that is replaced, or the file
	// from which the content was copied.
	Like string
	// SingleWriter is set by a caller that never replaces the path twice at the same time. The temporary file then has one name, which
	// TemporaryPath returns, so that crashes leave at most one behind. Otherwise each write has another name, which TemporaryGlob matches.
	SingleWriter bool
	// Volatile is set for a file that is not needed after a reboot, or written again: nothing is synced.
	Volatile bool
	// Files is the file system to write to; nil means the host's.
	Files disk.FileSystem
}

// syncFolder returns after the names in the folder are on the disk, unless they are volatile.
func (o Options) syncFolder(path string) error {
	if o.Volatile {
		return nil
	}
	return disk.SyncFolder(o.Files, path)
}

// The temporary files of a path are hidden and end in suffix: folders that are read by extension, such as those of CDI specs and of
// containerd's imports, ignore them.
const (
	prefix = "."
	suffix = ".tmp"
)

// TemporaryPath returns the path of the temporary file with Options.SingleWriter.
func TemporaryPath(path string) string {
	return filepath.Join(filepath.Dir(path), prefix+filepath.Base(path)+suffix)
}

// TemporaryGlob returns a pattern (filepath.Glob) for the temporary files of the path, whose last element may be a pattern itself. A caller
// without Options.SingleWriter removes the old ones among them (RemoveTemporary).
func TemporaryGlob(path string) string { return TemporaryPath(path + "*") }

// RemoveTemporary removes the temporary files of the path, whose elements may be patterns, that are older than a minute: those of processes that were
// killed while they wrote, or that could not remove them. A write takes far less than a minute.
func RemoveTemporary(files disk.FileSystem, path string) error {
	found, err := filepath.Glob(TemporaryGlob(path))
	if err != nil {
		return err
	}
	for _, file := range found {
		info, err := os.Lstat(file)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if err := disk.RemoveIfExists(files, file); err != nil {
			return err
		}
	}
	return nil
}

// Write makes data the content of the file. See the package's description for what holds after an error.
func Write(path string, data []byte, o Options) error {
	pending, err := Create(path, o)
	if err != nil {
		return err
	}
	if _, err := pending.Write(data); err != nil {
		return errors.Join(err, pending.Abort())
	}
	return pending.Commit()
}

// Pending is the new content of a file until Commit or Abort, one of which must be called. It is not safe for concurrent use.
type Pending struct {
	fs              disk.FileSystem
	file            disk.File
	path, temporary string
	options         Options
}

// Create opens the temporary file for the path. The folder must exist.
func Create(path string, o Options) (*Pending, error) {
	p := &Pending{fs: disk.Or(o.Files), path: path, options: o}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("create a temporary file for %s: %w", path, err)
	}
	return p, nil
}

// attempts is how many random names are tried. A second one is practically never needed.
const attempts = 100

func (p *Pending) open() (err error) {
	const flags = os.O_WRONLY | os.O_CREATE | syscall.O_NOFOLLOW
	if p.options.SingleWriter {
		p.temporary = TemporaryPath(p.path)
		p.file, err = p.fs.OpenFile(p.temporary, flags|os.O_TRUNC, 0o600)
		return err
	}
	for range attempts {
		p.temporary = TemporaryPath(fmt.Sprintf("%s.%08x", p.path, rand.Uint32()))
		p.file, err = p.fs.OpenFile(p.temporary, flags|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return err
}

// Write appends to the new content.
func (p *Pending) Write(data []byte) (int, error) { return p.file.Write(data) }

// Commit makes what was written the content of the file. Unless it is volatile, Commit returns after that is on the disk.
func (p *Pending) Commit() error {
	err := p.setAttributes()
	if err == nil && !p.options.Volatile {
		err = p.file.Sync()
	}
	if err != nil {
		return errors.Join(err, p.Abort())
	}
	if err := p.file.Close(); err != nil {
		return errors.Join(err, p.discard())
	}
	if err := p.fs.Rename(p.temporary, p.path); err != nil {
		return errors.Join(err, p.discard())
	}
	return p.options.syncFolder(filepath.Dir(p.path))
}

// Abort removes what was written and leaves the file as it is.
func (p *Pending) Abort() error { return errors.Join(p.file.Close(), p.discard()) }

func (p *Pending) discard() error { return disk.RemoveIfExists(p.fs, p.temporary) }

// setAttributes sets mode and owner of the temporary file.
func (p *Pending) setAttributes() error {
	mode := p.options.Mode
	if p.options.Like != "" {
		info, err := os.Stat(p.options.Like)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return p.file.Chmod(mode)
		case err != nil:
			return err
		}
		mode = info.Mode().Perm()
		stat, ok := info.Sys().(*syscall.Stat_t)
		if ok && (int(stat.Uid) != os.Geteuid() || int(stat.Gid) != os.Getegid()) {
			if err := p.file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
				return err
			}
		}
	}
	return p.file.Chmod(mode)
}

// Remove removes the files that exist, in order, and, unless they are volatile, returns after that is on the disk. All of them must be in one
// folder. After an error the first ones may have been removed. A power failure may undo any of the removals before Remove returns. Files that are
// missing may have been removed by a process that ended before the sync.
func Remove(o Options, paths ...string) error {
	for _, path := range paths {
		if err := disk.RemoveIfExists(o.Files, path); err != nil {
			return err
		}
	}
	return o.syncFolder(filepath.Dir(paths[0]))
}
