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

// reaper starts processes and collects every child that ends: ours, and those that lost their parent.
type reaper struct {
	mu      sync.Mutex
	running map[int]*process
}

// process is a child started by us. done is closed once it has ended; status holds from then on.
type process struct {
	pid    int
	status unix.WaitStatus
	done   chan struct{}
}

func newReaper() *reaper { return &reaper{running: map[int]*process{}} }

// start runs a program with its output appended to log. The lock makes sure that a child is known before its end is collected.
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

// run collects ended children for as long as the machine lives.
func (r *reaper) run() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
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

// signal sends to the process unless it has ended; a number that was used again is never hit.
func (r *reaper) signal(p *process, sig unix.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[p.pid] == p {
		_ = unix.Kill(p.pid, sig) // it is our child and not yet collected: the number is its own
	}
}
