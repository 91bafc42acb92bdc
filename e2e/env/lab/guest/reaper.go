package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts processes and reaps every child that exits, including orphans that the kernel assigned to this process.
type reaper struct {
	mu      sync.Mutex
	running map[int]*process
}

// process is a started child. done is closed after it has exited; status is valid from then on.
type process struct {
	pid    int
	status unix.WaitStatus
	done   chan struct{}
}

func newReaper() *reaper { return &reaper{running: map[int]*process{}} }

// start runs a program with its output appended to log. The lock ensures that a child is registered before its exit is
// reaped.
func (r *reaper) start(path string, args, env []string, log *os.File) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer null.Close() //nolint:errcheck // opened for reading
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &process{pid: pid, done: make(chan struct{})}
	r.running[pid] = p
	return p, nil
}

// run reaps children until the machine ends.
func (r *reaper) run() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	r.collect() // a child that exited before caused no signal
	for range ended {
		r.collect()
	}
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		if p, ours := r.running[pid]; ours {
			delete(r.running, pid)
			p.status = status
			close(p.done)
		}
	}
}

// signal sends the signal to the process unless it has exited. A reused PID is never signaled.
func (r *reaper) signal(p *process, sig unix.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[p.pid] == p {
		_ = unix.Kill(p.pid, sig) // a child that is not yet reaped: the PID cannot have been reused
	}
}
