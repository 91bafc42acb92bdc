package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// The names of the files: runtimes read the files with this extension.
const (
	extension   = ".json"
	commonFile  = "tessera-common" + extension
	claimPrefix = "tessera-claim-"
	ownPrefix   = "tessera-"
)

func claimFile(uid string) string { return claimPrefix + uid + extension }

// writeSpec checks the spec against the host and replaces the file atomically. The folder is emptied by a reboot.
func (s *Specs) writeSpec(name string, spec *cdispec.Spec) error {
	if err := s.validateSpec(spec); err != nil {
		return err
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.MakeFolder(s.config.Files, s.config.Dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(s.path(name), append(text, '\n'), atomicfile.Options{Mode: 0o644, Volatile: true, Files: s.config.Files})
}

// HookPrograms returns the host paths of the programs that the common spec in the folder names; false without a spec.
func HookPrograms(dir string) ([]string, bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, commonFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	var spec cdispec.Spec
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the common CDI spec: %w", err)
	}
	var programs []string
	for _, hook := range spec.ContainerEdits.Hooks {
		programs = append(programs, hook.Path)
	}
	return programs, true, nil
}

// validateSpec returns an error that names the first host path of the spec that does not exist. Without this check the
// container would fail to start, with a less specific error.
func (s *Specs) validateSpec(spec *cdispec.Spec) error {
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
