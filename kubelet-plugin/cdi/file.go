package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	cdispec "tags.cncf.io/container-device-interface/specs-go"
)

// The names of the files: runtimes read every file with this extension, and no other.
const (
	extension   = ".json"
	commonFile  = "tessera-common" + extension
	claimPrefix = "tessera-claim-"
	temporary   = "tessera-*.tmp"
)

func claimFile(uid string) string { return claimPrefix + uid + extension }

// put checks the spec against the host and writes it to the file, at once or not at all. It is not
// synced: the folder is empty after a boot, and specs are written again.
func (s *Specs) put(name string, spec *cdispec.Spec) error {
	if err := s.check(spec); err != nil {
		return err
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.config.Dir, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(s.config.Dir, temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), s.path(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// sweep removes what processes left behind that died while they wrote. A write takes far less than a
// minute.
func (s *Specs) sweep() error {
	files, err := filepath.Glob(s.path(temporary))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Lstat(file)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// check returns an error that names the first host path of the spec that is not there. With it a
// container would fail to start, with an error that says less.
func (s *Specs) check(spec *cdispec.Spec) error {
	edits := []cdispec.ContainerEdits{spec.ContainerEdits}
	for _, device := range spec.Devices {
		edits = append(edits, device.ContainerEdits)
	}
	var paths []string
	for _, e := range edits {
		for _, node := range e.DeviceNodes {
			if node.Type == "" {
				paths = append(paths, node.HostPath)
			}
		}
		for _, mount := range e.Mounts {
			paths = append(paths, mount.HostPath)
		}
		for _, hook := range e.Hooks {
			paths = append(paths, hook.Path)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		seen, err := s.config.Roots.See(path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(seen); err != nil {
			return fmt.Errorf("host file %s: %w", path, errors.Unwrap(err))
		}
	}
	return nil
}
