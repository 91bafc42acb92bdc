package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a started command. A background goroutine waits for it.
type Process struct {
	Cmd *exec.Cmd
	// Ended is closed when the process has exited.
	Ended <-chan struct{}
}

// Start starts the command with its output appended to the log. The command is killed when the calling process ends.
func Start(log string, cmd *exec.Cmd) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // the child has its own
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	return &Process{Cmd: cmd, Ended: ended}, nil
}

// Kill kills the process and waits until it has exited. It has no effect on an exited process.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// Terminate ends the process with SIGTERM, as kubelet does, and waits until it has exited. It returns an error if the
// exit status is not 0.
func (p *Process) Terminate() error {
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("terminate %s: %w", filepath.Base(p.Cmd.Path), err)
	}
	<-p.Ended
	if state := p.Cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s ended with %v", filepath.Base(p.Cmd.Path), state)
	}
	return nil
}

// ErrEnded is returned when a process has exited, so that waiting for its effects is useless.
var ErrEnded = errors.New("ended")

// Alive returns an error that wraps ErrEnded if the process has exited.
func (p *Process) Alive() error {
	select {
	case <-p.Ended:
		return fmt.Errorf("%s %w: %v", filepath.Base(p.Cmd.Path), ErrEnded, p.Cmd.ProcessState)
	default:
		return nil
	}
}

// Patience is the timeout for an expected event. It only ends waits that cannot succeed, and includes a margin for a
// busy machine, even one that does not run for a minute: no test takes as long, and no test measures a duration with
// it.
const Patience = 5 * time.Minute

// pollPause is the pause of Poll between two attempts.
const pollPause = 5 * time.Millisecond

// Poll repeats try until it succeeds, returns ErrEnded, or ctx ends. In the last case the error includes the last error
// of try.
func Poll(ctx context.Context, try func(context.Context) error) error {
	return PollEvery(ctx, pollPause, try)
}

// PollEvery is Poll with another pause, for expensive or slow conditions.
func PollEvery(ctx context.Context, pause time.Duration, try func(context.Context) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var why error
	for {
		err := try(ctx)
		if err == nil || errors.Is(err, ErrEnded) {
			return err
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), why)
		}
	}
}
