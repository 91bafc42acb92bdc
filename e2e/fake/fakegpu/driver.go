package fakegpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// move is a folder of a driver's files, and its place while the driver is removed.
type move struct {
	place, removed string
}

// moves are the folders of the driver. The one with the libraries comes last, because processes that
// wait for a driver look for those.
func moves(dir string) []move {
	removed := removedFolder(dir)
	return []move{
		{filepath.Join(ProcRoot(dir), "driver/nvidia"), filepath.Join(removed, "nvidia")},
		{filepath.Join(ProcRoot(dir), "driver/nvidia-caps"), filepath.Join(removed, "nvidia-caps")},
		{filepath.Join(DriverRoot(dir), "lib"), filepath.Join(removed, "lib")},
		{filepath.Join(DriverRoot(dir), "usr"), filepath.Join(removed, "usr")},
	}
}

// removedFolder keeps the files that RemoveDriver removed.
func removedFolder(dir string) string { return filepath.Join(dir, "removed") }

// barePath is the path of the state of a bare machine; a driver that is installed shows it among its
// libraries.
func barePath(dir string) string { return filepath.Join(dir, "hardware", "state") }

// findState returns the path of the state file: with the driver, also while that is removed.
func findState(dir string, spec Spec) string {
	if spec.Bare {
		return barePath(dir)
	}
	removed := filepath.Join(removedFolder(dir), libraryFolder, stateFileName(spec.DriverVersion))
	if _, err := os.Stat(removed); err == nil {
		return removed
	}
	return statePath(dir, spec.DriverVersion)
}

var errBare = errors.New("the machine is bare: its driver comes and goes by its modules")

// RemoveDriver unloads the driver and removes its files: the driver root stays, with its device nodes. Open sessions
// end with NVML_ERROR_DRIVER_NOT_LOADED. RestoreDriver undoes it.
func RemoveDriver(dir string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Bare {
		return errBare
	}
	if err := reload(findState(dir, spec), func(l *live) { l.Loaded = 0 }); err != nil {
		return fmt.Errorf("unload the driver: %w", err)
	}
	if err := os.Mkdir(removedFolder(dir), 0o755); err != nil {
		return err
	}
	for _, m := range moves(dir) {
		if err := rename(m.place, m.removed); err != nil {
			return err
		}
	}
	return writeModules(dir, "")
}

// RestoreDriver loads the driver again and restores the files that RemoveDriver removed.
func RestoreDriver(dir string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Bare {
		return errBare
	}
	if err := reload(findState(dir, spec), func(l *live) { l.Loaded = 1 }); err != nil {
		return fmt.Errorf("load the driver: %w", err)
	}
	if err := writeModules(dir, spec.DriverVersion); err != nil {
		return err
	}
	for _, m := range moves(dir) {
		if err := rename(m.removed, m.place); err != nil {
			return err
		}
	}
	return os.Remove(removedFolder(dir))
}

// rename moves a folder, if it exists: a machine of InstallDriver has only some of them.
func rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// SetDriverVersion unloads the driver, installs another version in its place and loads that. The
// state file keeps its inode under its new name, so that mounts in containers stay valid.
func SetDriverVersion(ctx context.Context, dir, version string) error {
	spec, err := ReadSpec(dir)
	if err != nil {
		return err
	}
	if spec.Bare {
		return errBare
	}
	machine, err := catalog.FindMachine(spec.Machine)
	if err != nil {
		return err
	}
	cuda, err := cudaVersion(version)
	if err != nil {
		return err
	}
	next := filepath.Join(dir, "next")
	if err := writeDriver(ctx, next, version); err != nil {
		return err
	}
	old := statePath(dir, spec.DriverVersion)
	if err := reload(old, func(l *live) { l.Loaded = 0 }); err != nil {
		return fmt.Errorf("unload the driver: %w", err)
	}
	if err := replaceDriver(dir, next, old, version); err != nil {
		return fmt.Errorf("replace the driver: %w", err)
	}
	spec.DriverVersion = version
	if err := spec.write(dir); err != nil {
		return err
	}
	if err := errors.Join(writeDriverProc(dir, spec, machine), writeModules(dir, version)); err != nil {
		return err
	}
	return reload(statePath(dir, version), func(l *live) {
		l.load(version, spec.Kernel, cuda)
	})
}

// replaceDriver moves the state file into the new driver's folders, and those into the driver root.
func replaceDriver(dir, next, state, version string) error {
	err := os.Rename(state, filepath.Join(next, libraryFolder, stateFileName(version)))
	if err != nil {
		return err
	}
	for _, folder := range []string{"lib", "usr"} {
		place := filepath.Join(DriverRoot(dir), folder)
		if err := os.RemoveAll(place); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(next, folder), place); err != nil {
			return err
		}
	}
	return os.Remove(next)
}
