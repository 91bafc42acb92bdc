package smi

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Program is the driver's nvidia-smi as this process can run it. Both paths are those of this
// process's own mount namespace.
type Program struct {
	// Path is the program.
	Path string
	// Library is the libnvidia-ml.so.1 of the same driver. The program is started with it preloaded and
	// finds it under its name; empty leaves the search to the dynamic linker.
	//
	// The program is neither started in the driver's root nor given its library folders: those may hold
	// another libc than the one that starts the program, and a root may lack /dev and /proc. nvidia-smi
	// needs nothing else of the driver, and runs on any glibc that a driver's library runs on.
	Library string
}

// Tool sets time slices. It is safe for concurrent use.
type Tool struct {
	find func() (Program, error)
}

// New returns a tool that asks find for the program at every call, since a driver may come, go and
// change. An error of find is an error of the call.
func New(find func() (Program, error)) *Tool { return &Tool{find: find} }

// intervals are the classes by the number that nvidia-smi knows them by.
func intervals() []string { return []string{"Default", "Short", "Medium", "Long"} }

// grace is how long a program that was told to end may hold on to its output.
const grace = time.Second

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
	if err := ctx.Err(); err != nil {
		return err
	}
	program, err := t.find()
	if err != nil {
		return fmt.Errorf("find nvidia-smi: %w", err)
	}
	return program.run(ctx, "compute-policy", "-i", gpuUUID, "--set-timeslice="+strconv.Itoa(number))
}

func (p Program) run(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, p.Path, arguments...)
	command.WaitDelay = grace
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if p.Library != "" {
		command.Env = append(command.Env, "LD_PRELOAD="+p.Library)
	}
	output, err := command.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", p.Path, context.Cause(ctx))
	}
	if said := strings.Join(strings.Fields(string(output)), " "); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if meaning := sentinel(err, string(output)); meaning != nil {
		err = fmt.Errorf("%w: %w", err, meaning)
	}
	return fmt.Errorf("%s: %w", p.Path, err)
}

// The exit statuses of nvidia-smi that a caller decides on; they are NVML's return codes (nvidia-smi(1),
// RETURN VALUE).
const (
	notSupported     = 3
	driverNotLoaded  = 9
	libraryNotFound  = 12
	functionNotFound = 13
	gpuLost          = 15
)

// sentinel says what the exit status means to a caller; nil when it means nothing special.
func sentinel(err error, output string) error {
	if strings.Contains(strings.ToLower(output), "not supported") {
		return gpu.ErrUnsupported
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil
	}
	switch exit.ExitCode() {
	case notSupported, functionNotFound:
		return gpu.ErrUnsupported
	case driverNotLoaded, libraryNotFound:
		return gpu.ErrNoDriver
	case gpuLost:
		return gpu.ErrLost
	}
	return nil
}
