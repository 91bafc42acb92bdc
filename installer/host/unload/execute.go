package unload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// ErrBusy is the error for a module or mount in use.
var ErrBusy = errors.New("in use")

// Kernel accesses the kernel's modules.
type Kernel interface {
	// Loaded returns the loaded modules.
	Loaded() ([]survey.Module, error)
	// Remove removes a module. The error wraps ErrBusy if it is in use; Remove does not wait for the end of that use.
	Remove(ctx context.Context, module string) error
}

// Mounts accesses the mounts of the host.
type Mounts interface {
	// Below returns the mount points at and below a path, in mount order.
	Below(path string) ([]string, error)
	// Unmount unmounts a path. The error wraps ErrBusy if it is in use; a lazy unmount would stay active without being visible.
	Unmount(path string) error
}

// Config has the settings of the verb.
type Config struct {
	Roots  host.Roots
	Kernel Kernel
	Mounts Mounts
	// Processes is a procfs in which the host's processes are visible.
	Processes string
	// Digest is the digest of the next driver: if it is already loaded, it stays. Empty means that any loaded driver is removed.
	Digest string
	// StateFile is the host path of the file in which a driver container stores its digest.
	StateFile string
	// FirmwarePath is the firmware search path that a driver container sets.
	FirmwarePath string
	// Validations is the host path of the folder with the files in which a driver container reports its readiness.
	Validations string
	// Files is the file system of Validations; nil means the host's.
	Files disk.FileSystem
}

// Run unloads what a previous driver container left. It is idempotent: a module that could not be removed is still loaded, with its dependencies, so
// a failed run only leaves the unload incomplete.
func (c Config) Run(ctx context.Context) host.Result {
	changed, message, err := c.run(ctx)
	return host.Outcome(Verb, host.Changed(changed), message, err)
}

func (c Config) run(ctx context.Context) (changed bool, message string, err error) {
	seen, err := c.look()
	if err != nil {
		return false, "", err
	}
	plan, err := Make(seen, c.Digest)
	if err != nil {
		return false, "", err
	}
	if err := c.notReady(); err != nil {
		return false, "", err
	}
	for _, module := range plan.Remove {
		if err := c.Kernel.Remove(ctx, module); err != nil {
			return changed, "", c.notRemoved(seen, module, err)
		}
		changed = true
	}
	if !plan.Keep {
		if err := c.resetFirmwarePath(); err != nil {
			return changed, "", err
		}
	}
	for _, path := range plan.Unmount {
		if err := c.Mounts.Unmount(path); err != nil {
			return changed, "", c.notUnmounted(path, err)
		}
		changed = true
	}
	return changed, plan.summary(seen), nil
}

// notReady removes the files in which an earlier driver container reported that it is ready. A container that was killed leaves them, and sidecars of
// the next pod would use a driver that is being replaced.
func (c Config) notReady() error {
	if c.Validations == "" {
		return nil
	}
	folder, err := c.Roots.See(c.Validations)
	if err != nil {
		return err
	}
	for _, name := range []string{".driver-ctr-ready", ".driver-daemons-status"} {
		if err := disk.RemoveIfExists(c.Files, filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("remove the readiness of the former driver: %w", err)
		}
	}
	return nil
}

// resetFirmwarePath clears the kernel's firmware search path if an earlier driver container set it to its root. A precompiled RHEL image installs the
// firmware of its version only where no path is set (gpu-driver-container rhel9/precompiled/nvidia-driver:234-244), so that after an upgrade the kernel
// would find none.
func (c Config) resetFirmwarePath() error {
	if c.FirmwarePath == "" {
		return nil
	}
	file := filepath.Join(c.Roots.Sys, "module/firmware_class/parameters/path")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the firmware search path: %w", err)
	}
	if strings.TrimSpace(string(text)) != c.FirmwarePath {
		return nil
	}
	// A line feed: an empty write does not reach the kernel.
	if err := os.WriteFile(file, []byte("\n"), 0o644); err != nil {
		return fmt.Errorf("clear the firmware search path: %w", err)
	}
	return nil
}

func (c Config) notRemoved(seen Seen, module string, err error) error {
	if !errors.Is(err, ErrBusy) {
		return fmt.Errorf("remove module %s: %w", module, err)
	}
	// A process started to use it after the check.
	if holders, err := Holders(c.Processes); err == nil {
		seen.Holders = holders
	}
	return inUse(seen, module+" is in use")
}

func (c Config) notUnmounted(path string, err error) error {
	if !errors.Is(err, ErrBusy) {
		return fmt.Errorf("unmount %s: %w", c.Roots.OnHost(path), err)
	}
	return host.Fail(RootBusy, "the former driver's root cannot be unmounted: a process uses %s (`fuser -m` lists it); end it, or restart the node",
		c.Roots.OnHost(path))
}

// summary returns a message about the performed actions.
func (p Plan) summary(seen Seen) string {
	var parts []string
	switch {
	case p.Keep:
		parts = append(parts, fmt.Sprintf("driver %s is already loaded and is kept", seen.Version))
	case len(p.Remove) > 0:
		parts = append(parts, "unloaded "+strings.Join(p.Remove, ", "))
	default:
		parts = append(parts, "no driver is loaded")
	}
	if len(p.Unmount) > 0 {
		parts = append(parts, fmt.Sprintf("unmounted the former driver's root (%d mounts)", len(p.Unmount)))
	}
	return strings.Join(parts, "; ")
}
