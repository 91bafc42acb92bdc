// Package migmode changes the MIG mode of a node's GPUs where that needs a reset of idle GPUs: on A100 and A30. The installer drains the node first.
// Newer GPUs change it without a reset; there the node agent does so for claims, and this verb has nothing to change.
package migmode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/installer/host"
)

// Verb is the name of the verb.
const Verb = "mig-mode"

// Reasons of a failed change.
const (
	// GPUInUse: a process has the GPU open, or MIG instances exist.
	GPUInUse = "GPUInUse"
	// NotChanged: the driver reports success, and the mode is unchanged.
	NotChanged = "NotChanged"
	// NoDriver: nvidia-smi fails.
	NoDriver = "NoDriver"
)

// Mode is the MIG mode of a GPU as nvidia-smi prints it; empty for a GPU without MIG.
type Mode string

// The modes.
const (
	Enabled  Mode = "Enabled"
	Disabled Mode = "Disabled"
)

// GPU is a GPU with its mode. Pending is the mode after the next reset.
type GPU struct {
	UUID             string
	Current, Pending Mode
}

// Driver changes the MIG mode of GPUs.
type Driver interface {
	// GPUs returns all GPUs.
	GPUs(ctx context.Context) ([]GPU, error)
	// Set requests a mode, which the GPU applies at once or at its next reset. The error wraps ErrInUse if the GPU is in use.
	Set(ctx context.Context, uuid string, mode Mode) error
	// Reset resets GPUs together. The error wraps ErrInUse if one of them is in use.
	Reset(ctx context.Context, uuids []string) error
}

// ErrInUse is the error for a GPU in use.
var ErrInUse = errors.New("in use")

// Change returns the GPUs that must change, in order. GPUs without MIG are unchanged.
func Change(gpus []GPU, want Mode) []GPU {
	var change []GPU
	for _, gpu := range gpus {
		if gpu.Current != "" && (gpu.Current != want || gpu.Pending != want) {
			change = append(change, gpu)
		}
	}
	return change
}

// restoreTimeout limits the restore after a failed change.
const restoreTimeout = 5 * time.Minute

// Run changes all GPUs to the mode. If one fails, those before it are restored to their previous mode. Run is idempotent.
func Run(ctx context.Context, driver Driver, want Mode) host.Result {
	if want != Enabled && want != Disabled {
		return host.Outcome(Verb, false, "", fmt.Errorf("mode %q: must be %s or %s", want, Enabled, Disabled))
	}
	gpus, err := driver.GPUs(ctx)
	if err != nil {
		return host.Outcome(Verb, false, "", &host.Failure{Reason: NoDriver, Message: "the driver does not report the MIG modes of the GPUs", Cause: err})
	}
	change := Change(gpus, want)
	if len(change) == 0 {
		return host.Outcome(Verb, false, fmt.Sprintf("MIG is already %s on all GPUs that support it", strings.ToLower(string(want))), nil)
	}
	if err := bring(ctx, driver, change, want); err != nil {
		// GPUs are also restored after ctx ended; the separate limit covers an nvidia-smi that hangs.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		back := restore(limited, driver, change)
		cancel()
		return host.Outcome(Verb, back != nil, "", fail(err, back))
	}
	return host.Outcome(Verb, true, fmt.Sprintf("MIG is %s on %d GPUs", strings.ToLower(string(want)), len(change)), nil)
}

// bring changes the GPUs and verifies the change.
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
	return host.Fail(NotChanged, "MIG is not %s after a reset of %s; restart the node", strings.ToLower(string(want)), strings.Join(left, ", "))
}

// remaining returns the GPUs that do not have the mode.
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

// restore restores the previous modes of the GPUs.
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
			errs = append(errs, fmt.Errorf("restore MIG mode %s of %s: %w", was.Pending, was.UUID, err))
		}
	}
	return errors.Join(errs...)
}

// resetUnless resets a GPU unless it already has its previous mode.
func resetUnless(ctx context.Context, driver Driver, was GPU) error {
	left, err := remaining(ctx, driver, []GPU{was}, was.Current)
	if err != nil || len(left) == 0 {
		return err
	}
	return driver.Reset(ctx, left)
}

func fail(err, back error) error {
	failure := &host.Failure{Reason: NotChanged, Message: "the MIG mode could not be changed and was restored", Cause: err}
	var cause *host.Failure
	switch {
	case errors.As(err, &cause):
		failure.Reason = cause.Reason
	case errors.Is(err, ErrInUse):
		failure.Reason = GPUInUse
		failure.Message = "the MIG mode could not be changed and was restored: a process has a GPU open (list it with `nvidia-smi` or `fuser /dev/nvidia*`), or MIG instances " +
			"exist that belong to no claim (list them with `nvidia-smi mig -lgi`)"
	}
	if back != nil {
		failure.Message += "; restoring the MIG mode of some GPUs failed (" + back.Error() + ")"
	}
	return failure
}
