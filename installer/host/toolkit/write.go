package toolkit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
)

// kept is the suffix of the copy of the main file that is made before its first edit. No import matches it.
const kept = ".before-tessera"

// write performs the plan, each file atomically. If a file cannot be written, those before it are restored.
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
	return c.put(file.Path, file.Text)
}

// keep copies the main file before its first edit, and removes the copy when both are equal again.
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

// put writes a file of the host atomically, also across a crash, or removes it if the content is nil. Mode and owner are kept.
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
	err = os.MkdirAll(filepath.Dir(seen), 0o755)
	if err == nil {
		err = atomicfile.Write(seen, text, atomicfile.Options{Mode: 0o644, Keep: true})
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
