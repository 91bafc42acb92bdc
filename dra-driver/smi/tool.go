package smi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// Tool sets time slices and resets GPUs. It is safe for concurrent use.
type Tool struct {
	find func() (smi.Program, error)
}

// New returns a tool that asks find for the program at every call, since a driver may come, go and
// change. An error of find is an error of the call.
func New(find func() (smi.Program, error)) *Tool { return &Tool{find: find} }

// intervals are the classes by the number that nvidia-smi knows them by.
func intervals() []string { return []string{"Default", "Short", "Medium", "Long"} }

// Set sets the time-slice class of the GPU: Default, Short, Medium or Long. The class is the GPU's, for
// everybody on it, and lasts until it is set again or the driver is reloaded (nvidia-smi
// compute-policy --set-timeslice). It needs the rights of root.
//
// Errors carry what the program said. They wrap gpu.ErrUnsupported when the GPU has no time slices to
// set, as in MIG mode and before Volta, gpu.ErrNoDriver when there is no driver and gpu.ErrLost when
// the GPU does not answer. When ctx ends the program is killed, and what it has done is unknown.
func (t *Tool) Set(ctx context.Context, gpuUUID, interval string) error {
	if err := t.set(ctx, gpuUUID, interval); err != nil {
		return fmt.Errorf("set time slice %s on %s: %w", interval, gpuUUID, err)
	}
	return nil
}

func (t *Tool) set(ctx context.Context, gpuUUID, interval string) error {
	number := slices.Index(intervals(), interval)
	if number < 0 {
		return fmt.Errorf("must be one of %s", strings.Join(intervals(), ", "))
	}
	program, err := t.program(ctx)
	if err != nil {
		return err
	}
	_, err = run(ctx, program, "compute-policy", "-i", gpuUUID, "--set-timeslice="+strconv.Itoa(number))
	return err
}

// program finds nvidia-smi for a call that still has time.
func (t *Tool) program(ctx context.Context) (smi.Program, error) {
	if err := ctx.Err(); err != nil {
		return smi.Program{}, err
	}
	program, err := t.find()
	if err != nil {
		return smi.Program{}, fmt.Errorf("find nvidia-smi: %w", err)
	}
	return program, nil
}

// run runs the program and returns its output. Errors wrap the sentinel of api/gpu for what the caller decides on.
func run(ctx context.Context, program smi.Program, arguments ...string) (string, error) {
	output, err := program.Run(ctx, arguments...)
	if err == nil {
		return output, nil
	}
	for _, failure := range []struct{ smi, gpu error }{
		{smi.ErrInUse, gpu.ErrBusy}, {smi.ErrUnsupported, gpu.ErrUnsupported}, {smi.ErrLost, gpu.ErrLost}, {smi.ErrNoDriver, gpu.ErrNoDriver},
	} {
		if errors.Is(err, failure.smi) {
			return "", fmt.Errorf("%w: %w", err, failure.gpu)
		}
	}
	return "", err
}
