package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MakeFolder makes the folder and its missing parents. Nothing of it is durable.
func MakeFolder(files FileSystem, path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := MakeFolder(files, filepath.Dir(path), mode); err != nil {
		return err
	}
	if err := Or(files).Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) { // another process may make it, too
		return err
	}
	return nil
}

// MakeDurableFolder is MakeFolder and returns after the folder is on the disk, also if it existed: a process may have ended before the sync.
func MakeDurableFolder(files FileSystem, path string, mode fs.FileMode) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := MakeDurableFolder(files, parent, mode); err != nil {
			return err
		}
	}
	if err := MakeFolder(files, path, mode); err != nil {
		return err
	}
	return SyncFolder(files, parent)
}

// SyncFolder returns after the entries of the folder are on the disk.
func SyncFolder(files FileSystem, path string) error {
	folder, err := Or(files).OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// RemoveIfExists removes the file or the empty folder. A missing one is no error.
func RemoveIfExists(files FileSystem, path string) error {
	if err := Or(files).Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveAll removes the folder with everything below it, without following links. A missing one is no error.
func RemoveAll(files FileSystem, path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		remove := RemoveIfExists
		if entry.IsDir() {
			remove = RemoveAll
		}
		if err := remove(files, filepath.Join(path, entry.Name())); err != nil {
			return err
		}
	}
	return RemoveIfExists(files, path)
}
