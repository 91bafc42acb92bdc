package toolkit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// kept is the suffix of the copy of the main file that is made before its first edit. No import matches it.
const kept = ".before-tessera"

// write performs the plan, each file atomically. If a file cannot be written, those before it are restored. It also removes what an earlier run left: old
// temporary files, and the copy of the main file if both are equal again.
func (c Config) write(plan Plan) error {
	if err := c.writeAll(plan); err != nil {
		return err
	}
	return errors.Join(c.removeCopy(), c.removeTemporary(plan))
}

// removeTemporary removes old temporary files of the files that the verb writes.
func (c Config) removeTemporary(plan Plan) error {
	paths := []string{c.Main} // and of its copy
	for _, folder := range plan.Folders {
		paths = append(paths, filepath.Join(folder, dropIn))
	}
	var errs []error
	for _, path := range paths {
		seen, err := c.Roots.See(path)
		if err == nil {
			err = atomicfile.RemoveTemporary(c.Files, seen)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) writeAll(plan Plan) error {
	for i, file := range plan.Write {
		err := c.writeOne(file)
		if err == nil {
			continue
		}
		for _, done := range plan.Write[:i] {
			err = errors.Join(err, c.put(File{Path: done.Path, Text: done.Before, CopyOf: done.CopyOf}))
		}
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
			return &host.Failure{Reason: ConfigReadOnly, Message: "containerd's configuration is read-only and was not changed; " +
				"enable CDI in its source (enable_cdi = true)", Cause: err}
		}
		return err
	}
	return nil
}

func (c Config) writeOne(file File) error {
	if file.Path == c.Main && file.Before != nil {
		if err := c.keep(file); err != nil {
			return err
		}
	}
	return c.put(file)
}

// keep copies the main file before its first edit.
func (c Config) keep(file File) error {
	before, err := read(c.files(), c.Main+kept)
	if err != nil || before != nil || file.Text == nil || len(file.Before) == 0 {
		return err
	}
	return c.put(File{Path: c.Main + kept, Text: file.Before, CopyOf: c.Main})
}

// removeCopy removes the copy of the main file if both are equal again.
func (c Config) removeCopy() error {
	copied, err := read(c.files(), c.Main+kept)
	if err != nil || copied == nil {
		return err
	}
	present, err := read(c.files(), c.Main)
	if err != nil || !bytes.Equal(copied, present) {
		return err
	}
	return c.put(File{Path: c.Main + kept})
}

// put writes a file of the host atomically, also across a crash, or removes it if the content is nil. A file keeps its mode and
// owner; a copy gets those of its source.
func (c Config) put(file File) error {
	seen, err := c.Roots.See(file.Path)
	if err != nil {
		return err
	}
	if file.Text == nil {
		err := atomicfile.Remove(atomicfile.Options{Files: c.Files}, seen)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the folder is missing
			return fmt.Errorf("remove %s: %w", file.Path, err)
		}
		return nil
	}
	like, err := c.Roots.See(cmp.Or(file.CopyOf, file.Path))
	if err == nil {
		err = disk.MakeDurableFolder(c.Files, filepath.Dir(seen), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(seen, file.Text, atomicfile.Options{Mode: 0o644, Like: like, Files: c.Files})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file.Path, err)
	}
	return nil
}
