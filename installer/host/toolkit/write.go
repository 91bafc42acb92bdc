package toolkit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
)

// kept is what is appended to the name of the main file for the copy that is made of it before its first edit. No import matches it.
const kept = ".before-tessera"

// write makes the files what the plan says, each at once or not at all. When one cannot be written, those before it are put back.
func (c Config) write(plan Plan) error {
	for i, file := range plan.Write {
		err := c.writeOne(file)
		if err == nil {
			continue
		}
		for _, done := range plan.Write[:i] {
			err = errors.Join(err, c.put(done.Path, done.Before))
		}
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
			return &host.Failure{Reason: ConfigReadOnly, Message: "containerd's configuration cannot be written, and is as it was: " +
				"enable CDI where it comes from (enable_cdi = true)", Cause: err}
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
	return c.put(file.Path, file.Text)
}

// keep copies the main file before its first edit, and removes the copy when the file is like it again.
func (c Config) keep(file File) error {
	before, err := read(c.files(), c.Main+kept)
	if err != nil {
		return err
	}
	switch {
	case before == nil && file.Text != nil && len(file.Before) > 0:
		return c.put(c.Main+kept, file.Before)
	case before != nil && bytes.Equal(before, file.Text):
		return c.put(c.Main+kept, nil)
	}
	return nil
}

// put writes or, without a content, removes a file of the host. A new content is there as a whole or not at all, also after a crash; mode and owner stay.
func (c Config) put(path string, text []byte) error {
	seen, err := c.Roots.See(path)
	if err != nil {
		return err
	}
	if text == nil {
		if err := os.Remove(seen); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		return nil
	}
	if err := replace(seen, text); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".tessera-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone already when all went well
	if err := errors.Join(like(temporary, path), fill(temporary, text)); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// like gives a new file the mode and owner of the one whose place it takes.
func like(file *os.File, path string) error {
	mode := fs.FileMode(0o644)
	info, err := os.Stat(path)
	if err == nil {
		mode = info.Mode().Perm()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
			if err := file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
				return err
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return file.Chmod(mode)
}

func fill(file *os.File, text []byte) error {
	_, err := file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
