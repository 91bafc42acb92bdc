package handover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// joinLock is the file whose lock is held while an instance joins or ends, so that numbers are unique. spare is the file of an instance that has
// ended: the next instance uses it again, because on a full disk none can be created, and without an agent no claim can be released.
const (
	joinLock = ".door"
	spare    = ".spare"
)

// Instance is this process among the agents of the node. Its methods are safe for concurrent use.
type Instance struct {
	files  disk.FileSystem
	dir    string
	name   string
	number int
	file   disk.File
}

// Join makes the process the newest instance of the folder, which is created if it does not exist. The name is the pod's UID: a second process
// with the same name is refused. It needs no space on the disk if an instance has ended before. files is the file system, nil the host's; nothing in
// the folder is needed after a reboot.
func Join(files disk.FileSystem, dir, name string) (_ *Instance, err error) {
	if err := disk.MakeFolder(files, dir, 0o700); err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	entrance, err := lockJoins(files, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entrance.Close()) }()
	if err := spareDead(files, dir); err != nil {
		return nil, err
	}
	others, err := liveInstances(dir)
	if err != nil {
		return nil, err
	}
	number := 1
	for _, other := range others {
		if other.name == name {
			return nil, fmt.Errorf("join the agents of the node: another process has the name %s", name)
		}
		number = max(number, other.number+1)
	}
	file, err := writeNumber(files, dir, name, number)
	if err != nil {
		return nil, err
	}
	return &Instance{files: files, dir: dir, name: name, number: number, file: file}, nil
}

// Close ends the instance; an older one, if any, leads from now on.
func (i *Instance) Close() error {
	entrance, err := lockJoins(i.files, i.dir)
	if err != nil {
		return errors.Join(err, i.file.Close())
	}
	// Renamed before it is closed: at the event of the close, the instance is gone.
	return errors.Join(disk.Or(i.files).Rename(filepath.Join(i.dir, i.name), filepath.Join(i.dir, spare)), i.file.Close(), entrance.Close())
}

// Leads reports whether this instance is the newest that runs; false if that cannot be determined.
func (i *Instance) Leads() bool {
	newest, err := i.newest()
	return err == nil && newest
}

// newest reports whether no live instance joined after this one.
func (i *Instance) newest() (bool, error) {
	others, err := liveInstances(i.dir)
	if err != nil {
		return false, err
	}
	for _, other := range others {
		if other.number > i.number {
			return false, nil
		}
	}
	return true, nil
}

func lockJoins(files disk.FileSystem, dir string) (disk.File, error) {
	file, err := lock.Open(files, filepath.Join(dir, joinLock))
	if err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// writeNumber makes the file of the instance from the spare one, which is created if it is missing. The caller holds the join lock. The file is
// locked first, so that a file with the number always has a live holder, and renamed before the number is written, because older agents watch for
// writes. A number that the file has until then is one of an instance that has ended: at most, an older agent stops leading a moment earlier.
func writeNumber(files disk.FileSystem, dir, name string, number int) (disk.File, error) {
	file, err := lock.Open(files, filepath.Join(dir, spare))
	if err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	err = lock.Try(file, lock.Exclusive, lock.Range{})
	if err == nil {
		err = disk.Or(files).Rename(filepath.Join(dir, spare), filepath.Join(dir, name))
	}
	// The same number of bytes each time: overwriting them needs no space.
	text := fmt.Sprintf("%010d", number)
	if err == nil {
		_, err = file.WriteAt([]byte(text), 0)
	}
	if err == nil {
		err = file.Truncate(int64(len(text)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("join the agents of the node as %s: %w", name, err), file.Close())
	}
	return file, nil
}

// entry is the content of one file of the folder.
type entry struct {
	name   string
	number int
}

// liveInstances returns the instances whose files have a number and are locked.
func liveInstances(dir string) ([]entry, error) {
	var found []entry
	err := visitInstances(dir, func(name string, file *os.File, held bool) error {
		text, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		if number, unsigned := strconv.Atoi(string(text)); held && unsigned == nil {
			found = append(found, entry{name: name, number: number})
		}
		return nil
	})
	return found, err
}

// spareDead makes the files of instances that have ended the spare one. The caller holds the join lock.
func spareDead(files disk.FileSystem, dir string) error {
	return visitInstances(dir, func(_ string, file *os.File, held bool) error {
		if held {
			return nil
		}
		err := disk.Or(files).Rename(file.Name(), filepath.Join(dir, spare))
		if errors.Is(err, fs.ErrNotExist) { // an older version of the agent has removed it
			return nil
		}
		return err
	})
}

// visitInstances calls see for every instance's file, with whether its lock is held.
func visitInstances(dir string, see func(name string, file *os.File, held bool) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the agents of the node: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if err := visitInstance(filepath.Join(dir, entry.Name()), see); err != nil {
			return fmt.Errorf("list the agents of the node: %w", err)
		}
	}
	return nil
}

func visitInstance(path string, see func(name string, file *os.File, held bool) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := lock.IsHeld(file, lock.Range{})
	if err == nil {
		err = see(filepath.Base(path), file, held)
	}
	return errors.Join(err, file.Close())
}
