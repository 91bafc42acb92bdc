package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replace makes data the content of the file, durably: after a power cut the file is the old or the
// new one, and after replace returned nil the new one. Only one writer at a time may replace a file.
func replace(path string, data []byte) error {
	temporary := temporaryOf(path)
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// temporaryOf returns the name under which the next content of the file is written. It is hidden from
// List and used again, so that a crash leaves at most one.
func temporaryOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

// remove removes the files that exist, in order and durably.
func remove(paths ...string) error {
	removed := false
	for _, path := range paths {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		removed = removed || err == nil
	}
	if !removed {
		return nil
	}
	return syncFolder(filepath.Dir(paths[0]))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
