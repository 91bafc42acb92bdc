package handover

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// joinLock is the file whose lock is held while an instance joins, so that numbers are unique.
const joinLock = ".door"

// Instance is this process among the agents of the node. Its methods are safe for concurrent use.
type Instance struct {
	dir    string
	name   string
	number int
	file   *os.File
}

// Join makes the process the newest instance of the folder, which is created if it does not exist. The name is the pod's UID: a second process
// with the same name is refused. Files of instances that have ended are removed.
func Join(dir, name string) (_ *Instance, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	entrance, err := lockJoins(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entrance.Close()) }()
	if err := removeDead(dir); err != nil {
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
	file, err := writeNumber(filepath.Join(dir, name), number)
	if err != nil {
		return nil, err
	}
	return &Instance{dir: dir, name: name, number: number, file: file}, nil
}

// Close removes the instance; an older one, if any, leads from now on.
func (i *Instance) Close() error {
	return errors.Join(os.Remove(i.file.Name()), i.file.Close())
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

func lockJoins(dir string) (*os.File, error) {
	file, err := lock.Open(filepath.Join(dir, joinLock))
	if err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	if err := lock.Wait(file, lock.Exclusive); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// writeNumber creates the file, locks it and writes the number. The lock is taken first, so that a file with a number always has a live holder.
func writeNumber(path string, number int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("join the agents of the node: %w", err)
	}
	if err := lock.Try(file, lock.Exclusive, lock.Range{}); err != nil {
		return nil, errors.Join(fmt.Errorf("sign %s: %w", path, err), file.Close())
	}
	if _, err := file.WriteString(strconv.Itoa(number)); err != nil {
		return nil, errors.Join(fmt.Errorf("sign %s: %w", path, err), file.Close())
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

// removeDead removes the files of instances that have ended. The caller holds the join lock.
func removeDead(dir string) error {
	return visitInstances(dir, func(_ string, file *os.File, held bool) error {
		if held {
			return nil
		}
		if err := os.Remove(file.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// visitInstances calls see for every instance's file, with whether its lock is held.
func visitInstances(dir string, see func(name string, file *os.File, held bool) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the agents of the node: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == joinLock {
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
