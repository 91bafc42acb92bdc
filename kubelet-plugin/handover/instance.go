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

// joinLock is the file whose lock is held while an instance joins, so that two never get one number.
const joinLock = ".door"

// Instance is this process among the agents of the node. Its methods are safe for concurrent use.
type Instance struct {
	dir    string
	name   string
	number int
	file   *os.File
}

// Join makes the process the newest instance of the folder, which is created when it is missing. The
// name is the pod's UID: of two processes with one name the second is refused. What dead instances
// left is removed.
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
			return nil, fmt.Errorf("join the agents of the node: another process runs as %s", name)
		}
		number = max(number, other.number+1)
	}
	file, err := writeNumber(filepath.Join(dir, name), number)
	if err != nil {
		return nil, err
	}
	return &Instance{dir: dir, name: name, number: number, file: file}, nil
}

// Close leaves: an older instance, if there is one, leads from now on.
func (i *Instance) Close() error {
	return errors.Join(os.Remove(i.file.Name()), i.file.Close())
}

// Leads reports whether this instance is the newest live one. In doubt it is not.
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

// writeNumber creates the file, locks it and writes the number. The lock comes first: whoever sees the
// number sees a live holder.
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

// entry is what one file of the folder says.
type entry struct {
	name   string
	number int
}

// liveInstances returns the instances whose files are signed and locked.
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

// removeDead removes the files of instances that are gone. Only whoever holds the door may do so; who leaves just now has removed its own.
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

// visitInstances calls see for every instance's file, with whether somebody holds its lock.
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
