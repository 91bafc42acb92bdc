// Package smi runs the driver's nvidia-smi and classifies its failures.
package smi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"time"
)

// Program is nvidia-smi as this process can run it. Both paths are in this process's mount namespace.
type Program struct {
	// Path is the program.
	Path string
	// Library is the libnvidia-ml.so.1 of the same driver. The program is started with it preloaded; empty leaves the search to the
	// dynamic linker.
	//
	// The program is neither started in the driver's root nor given its library folders: those may hold another libc than the one that
	// starts the program, and a root may lack /dev and /proc. nvidia-smi needs nothing else of the driver, and runs on any glibc that a
	// driver's library runs on.
	Library string
}

// The failures that a caller decides on. An error wraps at most one of them.
var (
	// ErrInUse means that a process has the GPU open, or that it has MIG devices.
	ErrInUse = errors.New("in use")
	// ErrUnsupported means that the GPU or the driver does not have the function.
	ErrUnsupported = errors.New("not supported")
	// ErrLost means that the GPU does not respond.
	ErrLost = errors.New("GPU is lost")
	// ErrNoDriver means that the program, its library or the kernel module is missing.
	ErrNoDriver = errors.New("no driver")
	// ErrStuck means that the program was killed and did not end: it waits in the kernel (state D).
	ErrStuck = errors.New("nvidia-smi was killed and has not ended: it waits in the driver; see the kernel log, and reboot the node if it persists")
)

// abandonDelay is how long a killed program may take to end and to close its output.
const abandonDelay = time.Second

// Run runs the program and returns its output, standard error included. Errors carry the output and wrap the cause of ctx if ctx ended.
//
// When ctx ends the program is killed, and what it has done is unknown. A program that cannot be killed because it waits in the driver
// is abandoned after two seconds; the error then wraps ErrStuck too.
func (p Program) Run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, p.Path, arguments...)
	command.WaitDelay = abandonDelay
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if p.Library != "" {
		command.Env = append(command.Env, "LD_PRELOAD="+p.Library)
	}
	output, err := waitOrAbandon(ctx, command)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		// On a busy machine, a process that is being started can have the output open for longer than the delay.
		return string(output), nil
	case ctx.Err() != nil:
		if !errors.Is(err, ErrStuck) {
			err = nil
		}
		return "", p.failure(arguments, errors.Join(context.Cause(ctx), err))
	}
	cause := classify(err, string(output))
	if text := strings.Join(strings.Fields(string(output)), " "); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return "", p.failure(arguments, err)
}

func (p Program) failure(arguments []string, err error) error {
	return fmt.Errorf("%s %s: %w", p.Path, strings.Join(arguments, " "), err)
}

// waitOrAbandon runs the command and returns its output. After ctx ended, a command that does not end is left behind.
func waitOrAbandon(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	type result struct {
		output []byte
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		output, err := command.CombinedOutput()
		ended <- result{output, err}
	}()
	select {
	case r := <-ended:
		return r.output, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-ended:
		return r.output, r.err
	case <-time.After(2 * abandonDelay):
		return nil, ErrStuck
	}
}

// The exit statuses that are classified. They are NVML's return codes (nvidia-smi(1), RETURN VALUE).
const (
	notSupported     = 3
	driverNotLoaded  = 9
	libraryNotFound  = 12
	functionNotFound = 13
	gpuLost          = 15
	inUse            = 19
)

// classify returns the failure that the output or the exit status stands for; nil if it is none of those above. The output comes first:
// a refused reset ends with status 255 whatever the reason.
func classify(err error, output string) error {
	text := strings.ToLower(output)
	switch {
	case strings.Contains(text, "not supported"):
		return ErrUnsupported
	case strings.Contains(text, "in use"), strings.Contains(text, "being used"):
		return ErrInUse
	case strings.Contains(text, "gpu is lost"):
		return ErrLost
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoDriver // the program was removed with the driver
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil
	}
	switch exit.ExitCode() {
	case notSupported, functionNotFound:
		return ErrUnsupported
	case driverNotLoaded, libraryNotFound:
		return ErrNoDriver
	case gpuLost:
		return ErrLost
	case inUse:
		return ErrInUse
	}
	return nil
}
