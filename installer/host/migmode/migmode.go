// Package migmode changes the MIG mode of a node's GPUs where that needs a reset and no one else may be at work: on A100 and A30. The installer has drained
// the node before. Newer GPUs change it at once; there the node agent does it by claims, and this verb finds nothing to wait for.
package migmode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/installer/host"
)

// Verb is the verb's name.
const Verb = "mig-mode"

// The reasons why the mode cannot be changed.
const (
	// GPUInUse: somebody has the GPU open, or there are MIG instances.
	GPUInUse = "GPUInUse"
	// NotChanged: the GPU says it is done, and is not.
	NotChanged = "NotChanged"
	// NoDriver: nvidia-smi does not work.
	NoDriver = "NoDriver"
)

// Mode is the MIG mode of a GPU, in nvidia-smi's words; empty where a GPU has none.
type Mode string

// The modes.
const (
	Enabled  Mode = "Enabled"
	Disabled Mode = "Disabled"
)

// GPU is a GPU with its mode: Pending is the one that it will have after a reset.
type GPU struct {
	UUID             string
	Current, Pending Mode
}

// Driver changes GPUs.
type Driver interface {
	// GPUs returns all of them.
	GPUs(ctx context.Context) ([]GPU, error)
	// Set asks for a mode, which the GPU may take at once or at its next reset. It wraps ErrInUse when somebody uses the GPU.
	Set(ctx context.Context, uuid string, mode Mode) error
	// Reset resets GPUs together. It wraps ErrInUse when somebody uses one of them.
	Reset(ctx context.Context, uuids []string) error
}

// ErrInUse says that somebody uses a GPU.
var ErrInUse = errors.New("in use")

// Change returns the GPUs that must change, in order. Those without MIG stay as they are.
func Change(gpus []GPU, want Mode) []GPU {
	var change []GPU
	for _, gpu := range gpus {
		if gpu.Current != "" && (gpu.Current != want || gpu.Pending != want) {
			change = append(change, gpu)
		}
	}
	return change
}

// restoreTimeout limits how long a failed change is undone.
const restoreTimeout = 5 * time.Minute

// Run brings all GPUs to the mode. When one cannot be changed, those before it get back the mode that they had. It may be run again at any time.
func Run(ctx context.Context, driver Driver, want Mode) host.Result {
	if want != Enabled && want != Disabled {
		return host.Outcome(Verb, false, "", fmt.Errorf("mode %q: must be %s or %s", want, Enabled, Disabled))
	}
	gpus, err := driver.GPUs(ctx)
	if err != nil {
		return host.Outcome(Verb, false, "", &host.Failure{Reason: NoDriver, Message: "the driver does not tell the GPUs' modes", Cause: err})
	}
	change := Change(gpus, want)
	if len(change) == 0 {
		return host.Outcome(Verb, false, fmt.Sprintf("MIG is %s already on all GPUs that have it", strings.ToLower(string(want))), nil)
	}
	if err := bring(ctx, driver, change, want); err != nil {
		// GPUs are restored after ctx ended, too, but nvidia-smi may never end: the restore has a separate limit.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		back := restore(limited, driver, change)
		cancel()
		return host.Outcome(Verb, back != nil, "", fail(err, back))
	}
	return host.Outcome(Verb, true, fmt.Sprintf("MIG is %s on %d GPUs", strings.ToLower(string(want)), len(change)), nil)
}

// bring changes the GPUs and sees for itself that they have changed.
func bring(ctx context.Context, driver Driver, change []GPU, want Mode) error {
	for _, gpu := range change {
		if err := driver.Set(ctx, gpu.UUID, want); err != nil {
			return fmt.Errorf("set MIG mode %s on %s: %w", want, gpu.UUID, err)
		}
	}
	left, err := remaining(ctx, driver, change, want)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := driver.Reset(ctx, left); err != nil {
		return fmt.Errorf("reset %s: %w", strings.Join(left, ", "), err)
	}
	if left, err = remaining(ctx, driver, change, want); err != nil || len(left) == 0 {
		return err
	}
	return host.Fail(NotChanged, "MIG is not %s after a reset of %s: restart the node", strings.ToLower(string(want)), strings.Join(left, ", "))
}

// remaining returns those of the GPUs that do not have the mode.
func remaining(ctx context.Context, driver Driver, of []GPU, want Mode) ([]string, error) {
	gpus, err := driver.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	now := map[string]Mode{}
	for _, gpu := range gpus {
		now[gpu.UUID] = gpu.Current
	}
	var left []string
	for _, gpu := range of {
		if now[gpu.UUID] != want {
			left = append(left, gpu.UUID)
		}
	}
	return left, nil
}

// restore gives the GPUs back the modes that they had.
func restore(ctx context.Context, driver Driver, change []GPU) error {
	gpus, err := driver.GPUs(ctx)
	if err != nil {
		return err
	}
	now := map[string]GPU{}
	for _, gpu := range gpus {
		now[gpu.UUID] = gpu
	}
	var errs []error
	for _, was := range change {
		is := now[was.UUID]
		if is.Current == was.Current && is.Pending == was.Pending {
			continue
		}
		err := driver.Set(ctx, was.UUID, was.Pending)
		if err == nil && is.Current != was.Current {
			err = resetUnless(ctx, driver, was)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("give %s back MIG mode %s: %w", was.UUID, was.Pending, err))
		}
	}
	return errors.Join(errs...)
}

// resetUnless resets a GPU unless it has its mode without.
func resetUnless(ctx context.Context, driver Driver, was GPU) error {
	left, err := remaining(ctx, driver, []GPU{was}, was.Current)
	if err != nil || len(left) == 0 {
		return err
	}
	return driver.Reset(ctx, left)
}

func fail(err, back error) error {
	failure := &host.Failure{Reason: NotChanged, Message: "the MIG mode could not be changed, and is as it was", Cause: err}
	var said *host.Failure
	switch {
	case errors.As(err, &said):
		failure.Reason = said.Reason
	case errors.Is(err, ErrInUse):
		failure.Reason = GPUInUse
		failure.Message = "the MIG mode could not be changed, and is as it was: a program has a GPU open (`nvidia-smi` and `fuser /dev/nvidia*` name it), or MIG instances " +
			"that no claim owns are left (`nvidia-smi mig -lgi`)"
	}
	if back != nil {
		failure.Message += "; not all could be given back what they had (" + back.Error() + ")"
	}
	return failure
}
