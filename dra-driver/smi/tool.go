package smi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// Tool sets time slices and resets GPUs. It is safe for concurrent use.
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
	program, err := t.program(ctx)
	if err != nil {
		return err
	}
	_, err = program.run(ctx, "compute-policy", "-i", gpuUUID, "--set-timeslice="+strconv.Itoa(number))
	return err
}

// program finds nvidia-smi for a call that still has time.
func (t *Tool) program(ctx context.Context) (Program, error) {
	if err := ctx.Err(); err != nil {
		return Program{}, err
	}
	program, err := t.find()
	if err != nil {
		return Program{}, fmt.Errorf("find nvidia-smi: %w", err)
	}
	return program, nil
}

// run runs the program and returns what it said.
func (p Program) run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, p.Path, arguments...)
	command.WaitDelay = grace
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if p.Library != "" {
		command.Env = append(command.Env, "LD_PRELOAD="+p.Library)
	}
	output, err := outcome(ctx, command)
	switch {
	case err == nil:
		return string(output), nil
	case ctx.Err() != nil:
		if !errors.Is(err, errStuck) {
			err = nil
		}
		return "", fmt.Errorf("%s: %w", p.Path, errors.Join(context.Cause(ctx), err))
	}
	if said := strings.Join(strings.Fields(string(output)), " "); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	if meaning := sentinel(err, string(output)); meaning != nil {
		err = fmt.Errorf("%w: %w", err, meaning)
	}
	return "", fmt.Errorf("%s: %w", p.Path, err)
}

// errStuck says that a program cannot even be killed.
var errStuck = errors.New("it was killed and does not end: it waits in the driver; look into the kernel's log, and reboot the node when it stays")

// outcome runs the command and returns what it said. One that hangs in the driver cannot be killed and is left behind a while after ctx ended.
func outcome(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	type end struct {
		output []byte
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		output, err := command.CombinedOutput()
		ended <- end{output, err}
	}()
	select {
	case e := <-ended:
		return e.output, e.err
	case <-ctx.Done():
	}
	select {
	case e := <-ended:
		return e.output, e.err
	case <-time.After(2 * grace):
		return nil, errStuck
	}
}

// The exit statuses of nvidia-smi that a caller decides on; they are NVML's return codes (nvidia-smi(1),
// RETURN VALUE).
const (
	notSupported     = 3
	driverNotLoaded  = 9
	libraryNotFound  = 12
	functionNotFound = 13
	gpuLost          = 15
	inUse            = 19
)

// sentinel says what the exit status, or what the program said, means to a caller; nil when it means nothing special. A refused reset
// ends with 255 whatever the reason.
func sentinel(err error, output string) error {
	said := strings.ToLower(output)
	switch {
	case strings.Contains(said, "not supported"):
		return gpu.ErrUnsupported
	case strings.Contains(said, "in use by"), strings.Contains(said, "being used by"):
		return gpu.ErrBusy
	case strings.Contains(said, "gpu is lost"):
		return gpu.ErrLost
	}
	if errors.Is(err, fs.ErrNotExist) {
		return gpu.ErrNoDriver // the program left with it
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
	case inUse:
		return gpu.ErrBusy
	}
	return nil
}
