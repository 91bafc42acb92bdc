package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// driverDaemons are the daemons of the driver to which nvidia-smi talks through sockets in /var/run: nvidia-persistenced closes a GPU for a reset only on
// request, and so does the fabric manager.
func driverDaemons() []string { return []string{"nvidia-persistenced", "nvidia-fabricmanager"} }

// runFolder is the folder in which nvidia-smi looks for the daemons.
const runFolder = "/var/run"

// linkDaemons links the folders of the driver's daemons into the run folder of this process, whose pod has another /run. find returns the folder of a
// daemon. A folder that exists is not changed: without a pod, it is the daemon's own. A link to a daemon that does not run is removed.
func linkDaemons(run string, find func(daemon string) (string, error)) error {
	var errs []error
	for _, daemon := range driverDaemons() {
		link := filepath.Join(run, daemon)
		present, err := os.Readlink(link)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // a folder
		}
		folder, missing := find(daemon)
		switch {
		case missing != nil && err == nil:
			errs = append(errs, os.Remove(link))
		case missing == nil && present != folder:
			errs = append(errs, replaceLink(folder, link))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("link the daemons of the driver, which nvidia-smi must reach for a reset: %w", err)
	}
	return nil
}

func replaceLink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}
