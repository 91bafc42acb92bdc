package guest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

const (
	restartPause = time.Second            // between the end of a service and its next start
	probePause   = 100 * time.Millisecond // interval of the probes of a starting service
)

// service keeps one program running. Only its own goroutine starts the program; other goroutines change the wanted
// state and wait.
type service struct {
	machine.Service
	path    string
	env     []string
	needs   []*service
	reaper  *reaper
	logs    *os.Root
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change of the fields below
	wanted  bool
	state   machine.State
	process *process
	starts  int
}

// run keeps the program in the wanted state until the machine ends.
func (s *service) run(ctx context.Context) {
	for _, need := range s.needs {
		need.await(ctx, need.isReady)
	}
	for ctx.Err() == nil {
		if !s.isWanted() {
			s.set(machine.Stopped, nil)
			s.await(ctx, func() bool { return s.wanted })
			continue
		}
		if err := s.once(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.Name, err)
			s.set(machine.Failed, nil)
			s.pause(ctx)
		}
	}
}

// once starts the program. It returns nil if the program ended as wanted, otherwise the reason.
func (s *service) once(ctx context.Context) error {
	p, err := s.launch()
	if err != nil {
		return err
	}
	if s.Ready.Exit {
		<-p.done
	} else {
		s.watch(p)
	}
	if !s.isWanted() {
		return nil
	}
	if s.Ready.Exit && p.status.ExitStatus() == 0 {
		s.set(machine.Ready, nil)
		s.await(ctx, func() bool { return !s.wanted })
		return nil
	}
	return fmt.Errorf("ended by itself: %s", describe(p.status))
}

// watch probes the program until it is ready, and returns when it has exited.
func (s *service) watch(p *process) {
	ticker := time.NewTicker(probePause)
	defer ticker.Stop()
	for !probe(s.Ready) {
		select {
		case <-p.done:
			return
		case <-ticker.C:
		}
	}
	s.set(machine.Ready, p)
	<-p.done
}

func (s *service) launch() (*process, error) {
	log, err := s.logs.OpenFile(s.Name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the program has its own copy
	p, err := s.reaper.start(s.path, s.Args, s.env, log)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.starts++
	s.mu.Unlock()
	s.set(machine.Starting, p)
	if !s.isWanted() { // stopped during the start: stop found no process to signal
		s.reaper.signal(p, unix.SIGTERM)
	}
	return p, nil
}

// start makes the program wanted. It returns immediately.
func (s *service) start() { s.want(true) }

// stop makes the program unwanted and returns when it has exited.
func (s *service) stop(ctx context.Context) {
	s.want(false)
	if p := s.current(); p != nil {
		s.reaper.signal(p, unix.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(cmp.Or(s.Grace, machine.DefaultGrace)):
			s.reaper.signal(p, unix.SIGKILL)
		}
	}
	s.await(ctx, func() bool { return s.wanted || s.state == machine.Stopped || s.state == machine.Waiting })
}

// kill ends the program with SIGKILL and returns when it has exited. The program is still wanted and is restarted.
func (s *service) kill(ctx context.Context) error {
	p := s.current()
	if p == nil {
		return fmt.Errorf("kill %s: it does not run", s.Name)
	}
	s.reaper.signal(p, unix.SIGKILL)
	s.await(ctx, func() bool { return s.process != p })
	return ctx.Err()
}

// pause waits for restartPause, or until the program is unwanted.
func (s *service) pause(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, restartPause)
	defer cancel()
	s.await(ctx, func() bool { return !s.wanted })
}

// await returns when the condition, which is evaluated under the lock, is true, or ctx has ended.
func (s *service) await(ctx context.Context, condition func() bool) {
	for {
		s.mu.Lock()
		holds, changed := condition(), s.changed
		s.mu.Unlock()
		if holds {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (s *service) set(state machine.State, p *process) {
	s.change(func() { s.state, s.process = state, p })
}

func (s *service) want(wanted bool) {
	s.change(func() { s.wanted = wanted })
}

func (s *service) change(apply func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apply()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *service) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

func (s *service) isWanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// isReady is a condition for await.
func (s *service) isReady() bool { return s.state == machine.Ready }

// isSettled is a condition for await: the state changes no further without a request.
func (s *service) isSettled() bool { return s.state == machine.Ready || s.state == machine.Stopped }

func (s *service) status() machine.ServiceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := machine.ServiceStatus{Name: s.Name, State: s.state, Restarts: max(0, s.starts-1)}
	if s.process != nil {
		status.PID = s.process.pid
	}
	return status
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
