package toolkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/containerd"
	"github.com/tessera-gpu/tessera/installer/host/cri"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Runtime is the container runtime of the host.
type Runtime interface {
	// Status reads the runtime's status and waits for a response until ctx ends.
	Status(ctx context.Context) (cri.Status, error)
	// Restart restarts the runtime; containers keep running. It fails if the runtime does not start.
	Restart(ctx context.Context) error
}

// Config is the configuration of the verb.
type Config struct {
	Roots host.Roots
	// Main is the host path of containerd's configuration, CDI that of the folder of CDI specs.
	Main, CDI string
	Runtime   Runtime
	// Files is the file system of the host; nil means that of this process.
	Files disk.FileSystem
}

// startTimeout limits how long the runtime may take to respond, also after a restart.
const startTimeout = 90 * time.Second

// failed is the file that records a failed restart until the next boot, so that the same configuration is not retried.
const failed = "/run/tessera/toolkit-failed"

// Once configures the runtime to read CDI specs if it does not yet. It also returns the folders in which a change requires another call.
func (c Config) Once(ctx context.Context) (host.Result, []string) {
	changed, folders, message, err := c.once(ctx)
	return host.Outcome(Verb, host.Changed(changed), message, err), folders
}

func (c Config) once(ctx context.Context) (changed bool, folders []string, message string, err error) {
	status, err := c.readStatus(ctx)
	if err != nil {
		return false, nil, "", err
	}
	name := strings.TrimSpace(status.Name + " " + status.Version)
	edits, err := c.editable(status)
	if err != nil {
		return false, nil, "", err
	}
	if !edits {
		return false, nil, name + " already reads CDI specs; no change is made", nil
	}
	plan, err := Make(c.files(), c.Main, c.CDI)
	if err != nil {
		return false, nil, "", err
	}
	if !c.reads(status) && c.hasFailed(plan.ID) {
		return false, plan.Folders, "", host.Fail(RestartFailed, "%s did not start with CDI enabled and its configuration was restored; the next attempt is made when %s changes, "+
			"or when %s is removed", name, c.Main, failed)
	}
	if err := c.write(plan); err != nil {
		return false, plan.Folders, "", err
	}
	changed = len(plan.Write) > 0
	if c.reads(status) {
		return changed, plan.Folders, name + " runs with CDI enabled", c.deleteFailure()
	}
	if err := c.restart(ctx, plan.ID); err != nil {
		return changed, plan.Folders, "", err
	}
	return true, plan.Folders, name + " was restarted once with CDI enabled", nil
}

// Check succeeds if the running runtime reads CDI specs. It changes nothing.
func (c Config) Check(ctx context.Context) host.Result {
	status, err := c.readStatus(ctx)
	name := strings.TrimSpace(status.Name + " " + status.Version)
	edits := false
	if err == nil {
		edits, err = c.editable(status)
	}
	if err == nil && edits && !c.reads(status) {
		err = host.Fail(CDIDisabled, "%s runs without CDI, or without %s among its folders", name, c.CDI)
	}
	return host.Outcome(Verb, false, name+" reads CDI specs", err)
}

// Remove removes what Once has written. It takes effect at the next restart of the runtime, which Remove does not cause.
func (c Config) Remove() host.Result {
	plan, err := Unmake(c.files(), c.Main)
	if err == nil {
		err = c.write(plan)
	}
	return host.Outcome(Verb, len(plan.Write) > 0, "Tessera's settings are removed from the configuration "+c.Main, err)
}

func (c Config) files() containerd.Files { return containerd.OnHost{Roots: c.Roots} }

func (c Config) readStatus(ctx context.Context) (cri.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	status, err := c.Runtime.Status(ctx)
	if err != nil {
		return cri.Status{}, &host.Failure{Reason: RuntimeUnreachable, Message: "the container runtime does not respond; see its log", Cause: err}
	}
	return status, nil
}

// editable reports whether the runtime's configuration must be edited.
func (c Config) editable(status cri.Status) (bool, error) {
	major, minor := numbers(status.Version)
	switch {
	case status.Name == "cri-o":
		return false, nil
	case status.Name != "containerd":
		return false, host.Fail(RuntimeUnknown, "the container runtime is %q; supported are containerd 1.7 and newer, and CRI-O", status.Name)
	case major >= 2 && c.reads(status):
		return false, nil
	case major >= 2:
		return false, host.Fail(CDIDisabled, "containerd %s runs with CDI disabled, or without %s among its folders, because of its configuration %s; "+
			"remove enable_cdi and cdi_spec_dirs there and restart it", status.Version, c.CDI, c.Main)
	case major < 1 || minor < 7:
		return false, host.Fail(RuntimeUnknown, "containerd %s does not support CDI; upgrade it to 1.7 or newer", status.Version)
	}
	return true, nil
}

// numbers returns the first two numbers of a version.
func numbers(version string) (major, minor int) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for i, to := range []*int{&major, &minor} {
		if i < len(parts) {
			if n, err := strconv.Atoi(parts[i]); err == nil {
				*to = n
			}
		}
	}
	return major, minor
}

// reads reports whether the running runtime reads our CDI specs.
func (c Config) reads(status cri.Status) bool {
	return status.CDI && slices.ContainsFunc(status.Folders, func(f string) bool { return filepath.Clean(f) == filepath.Clean(c.CDI) })
}

// restart restarts the runtime. If that fails, the former configuration is restored and the runtime is started with it.
func (c Config) restart(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startTimeout)
	defer cancel()
	err := c.Runtime.Restart(ctx)
	if err == nil {
		var status cri.Status
		if status, err = c.readStatus(ctx); err == nil && !c.reads(status) {
			err = errors.New("CDI is still disabled after the restart")
		}
	}
	if err == nil {
		return c.deleteFailure()
	}
	failure := &host.Failure{Reason: RestartFailed, Cause: err, Message: "the container runtime did not start with CDI enabled and its configuration was restored"}
	if back := c.Remove(); !back.Done {
		failure.Message = "the container runtime did not start with CDI enabled and its configuration could not be restored (" + back.Message + "); restore it manually"
		return failure
	}
	// The runtime must be started even if ctx has ended.
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	if err := c.Runtime.Restart(again); err != nil {
		failure.Message += "; it does not start with the restored configuration either (" + err.Error() + "); see its log"
	}
	return errors.Join(failure, c.remember(id))
}

func (c Config) hasFailed(id string) bool {
	seen, err := c.Roots.See(failed)
	if err != nil {
		return false
	}
	text, err := os.ReadFile(seen)
	return err == nil && string(text) == id
}

func (c Config) remember(id string) error {
	seen, err := c.Roots.See(failed)
	if err != nil {
		return err
	}
	err = disk.MakeFolder(c.Files, filepath.Dir(seen), 0o755)
	if err == nil {
		err = atomicfile.Write(seen, []byte(id), atomicfile.Options{Mode: 0o644, Volatile: true, Files: c.Files})
	}
	if err != nil {
		return fmt.Errorf("record the failed restart: %w", err)
	}
	return nil
}

func (c Config) deleteFailure() error {
	seen, err := c.Roots.See(failed)
	if err != nil {
		return err
	}
	if err := disk.RemoveIfExists(c.Files, seen); err != nil {
		return fmt.Errorf("delete the record of the failed restart: %w", err)
	}
	return nil
}
