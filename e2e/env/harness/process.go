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

// Process is a started command. Its end is waited for once, in the background.
type Process struct {
	Cmd *exec.Cmd
	// Ended is closed when the process is gone.
	Ended <-chan struct{}
}

// Start starts the command with its output appended to the log. It dies with the caller's process.
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

// Kill ends the process as a crash does and waits until it is gone. Twice is fine.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// Terminate ends the process as kubelet ends a pod and waits until it is gone. An error says that it
// did not end well.
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

// ErrEnded says that a process is gone, and that what it would do does not come any more.
var ErrEnded = errors.New("ended")

// Alive returns an error when the process is gone, which wraps ErrEnded.
func (p *Process) Alive() error {
	select {
	case <-p.Ended:
		return fmt.Errorf("%s %w: %v", filepath.Base(p.Cmd.Path), ErrEnded, p.Cmd.ProcessState)
	default:
		return nil
	}
}

// Patience is how long a test waits for what must come. It only ends a wait that is in vain, so it has room for a machine that runs much else, and
// for one that stands still for a minute: no test takes as long, and none says with it how fast something is.
const Patience = 5 * time.Minute

// pollPause is how long Poll waits between two tries.
const pollPause = 5 * time.Millisecond

// Poll repeats try until it succeeds, says that a process has ended, or ctx ends; then the last error that came before tells why.
func Poll(ctx context.Context, try func(context.Context) error) error {
	return PollEvery(ctx, pollPause, try)
}

// PollEvery is Poll with a pause of its own, for what costs more or takes longer.
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
