package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// How often and how long the supervisor waits.
const (
	// look is how often the configuration is read.
	look = 100 * time.Millisecond
	// A daemon that ended is started again after the shortest pause, and after twice the last one each
	// time it ends again before it has served for proven.
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
	proven        = time.Minute
	// retryPause lies between tries to put other limits into effect.
	retryPause = time.Second
	// patience is how long processes that still hold the lock are left alone.
	patience = 5 * time.Second
	// logPeriod is how often the daemon's logs are looked at, logLimit how large one may become: they
	// are kept in memory.
	logPeriod = 10 * time.Second
	logLimit  = 8 << 20
)

// SupervisorConfig says what a supervisor works on.
type SupervisorConfig struct {
	// Folder is the daemon's folder.
	Folder string
	// Pod is the UID of the pod in which the supervisor runs.
	Pod string
	// Program finds the driver's program. It is called at every start of the daemon, since a driver may
	// come, go and change.
	Program func() (Program, error)
}

// Supervisor runs one daemon.
type Supervisor struct {
	SupervisorConfig
	lock  *os.File
	state state
	// patience and allowed are the constants, except in tests.
	patience time.Duration
	allowed  allowance
}

// NewSupervisor returns a supervisor.
func NewSupervisor(c SupervisorConfig) *Supervisor {
	return &Supervisor{SupervisorConfig: c, patience: patience, allowed: allowance{start: startLimit, command: commandLimit, quit: quitLimit}}
}

// Run keeps the daemon running as its configuration says until ctx ends, then ends it and returns nil.
// While there is no configuration no daemon runs. A daemon that cannot be started, or ends, is no
// error: it is written into the state and started again.
//
// Run needs a process of its own. It adopts orphans and kills every child when a daemon has ended.
func (s *Supervisor) Run(ctx context.Context) error {
	if s.Pod == "" {
		return errors.New("supervise an MPS daemon: the UID of the pod is unknown")
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	if err := s.hold(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("supervise the MPS daemon in %s: %w", s.Folder, err)
	}
	defer s.lock.Close() //nolint:errcheck // the process ends
	if err := s.inherit(); err != nil {
		return err
	}
	pause := shortestPause
	for ctx.Err() == nil {
		began := time.Now()
		c, err := read[configuration](s.Folder, configName)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			sleep(ctx, look)
			continue
		case err == nil:
			err = s.serve(ctx, c)
		}
		if err == nil || ctx.Err() != nil {
			pause = shortestPause
			continue
		}
		if time.Since(began) > proven {
			pause = shortestPause
		}
		klog.FromContext(ctx).Error(err, "The daemon ended or did not start", "pause", pause)
		s.count(ctx, c, err)
		sleep(ctx, pause)
		pause = min(2*pause, longestPause)
	}
	return nil
}

// hold takes the lock for the life of the process. Whoever holds it longer than patience is what an
// earlier life of this daemon left, and is killed: no second daemon may run on the same devices.
func (s *Supervisor) hold(ctx context.Context) error {
	path := filepath.Join(s.Folder, lockName)
	for last := time.Now().Add(s.patience); ; sleep(ctx, look) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		err = lock.Try(file, lock.Exclusive, lock.Byte(aliveByte))
		if err == nil && lock.IsAt(file, path) {
			s.lock = file
			return nil
		}
		if errors.Is(err, lock.ErrHeld) && time.Now().After(last) {
			err = s.evict(ctx, file)
		}
		if closing := file.Close(); err != nil && !errors.Is(err, lock.ErrHeld) {
			return errors.Join(err, closing)
		}
	}
}

// evict kills the processes that hold the lock.
func (s *Supervisor) evict(ctx context.Context, file *os.File) error {
	pids, err := holders(file)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		klog.FromContext(ctx).Info("Killing what an earlier daemon left", "pid", pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// inherit takes over what the former supervisor counted. It was killed if its daemon still served.
func (s *Supervisor) inherit() error {
	former, err := read[state](s.Folder, stateName)
	if err != nil {
		former = state{} // there is none, or one that nobody can read
	}
	s.state = former
	s.state.Pod, s.state.Serving = s.Pod, false
	if former.Serving {
		s.state.Restarts++
		s.state.LastError, s.state.LastErrorAt = "killed together with its supervisor", time.Now()
	}
	return s.save()
}

// serve runs one control daemon. It returns nil when ctx has ended or the configuration needs another
// daemon or none, and an error when the daemon failed; none is left in each case.
func (s *Supervisor) serve(ctx context.Context, c configuration) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	program, err := s.Program()
	if err != nil {
		return fmt.Errorf("find nvidia-cuda-mps-control: %w", err)
	}
	d, err := start(program, s.Folder, c, s.lock, s.allowed)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.withdraw())
		if ending := d.quit(ctx); ending != nil {
			klog.FromContext(ctx).Error(ending, "The daemon did not end well")
		}
	}()
	if err := d.ready(ctx); err != nil {
		return err
	}
	if err := d.limit(ctx, configuration{}, c); err != nil {
		return err
	}
	if err := d.occupy(ctx); err != nil {
		return err
	}
	if err := s.announce(ctx, c); err != nil {
		return err
	}
	return s.follow(ctx, d, c)
}

// follow leads a daemon that serves from one configuration to the next.
func (s *Supervisor) follow(ctx context.Context, d *control, c configuration) error {
	looks, logs := time.NewTicker(look), time.NewTicker(logPeriod)
	defer looks.Stop()
	defer logs.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.done:
			return d.ended()
		case <-logs.C:
			s.trim(ctx)
			continue
		case <-looks.C:
		}
		next, err := s.step(ctx, d, c)
		switch {
		case errors.Is(err, errOther):
			return nil
		case err != nil:
			// Clients depend on the daemon: it stays, under the limits that it has.
			s.complain(ctx, err)
			looks.Reset(retryPause)
		default:
			c = next
			looks.Reset(look)
		}
	}
}

// errOther says that the configuration needs another daemon, or none.
var errOther = errors.New("another daemon is needed")

// step leads a daemon under the configuration c to the one that is wanted now, and returns it.
func (s *Supervisor) step(ctx context.Context, d *control, c configuration) (configuration, error) {
	next, err := read[configuration](s.Folder, configName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, errOther
	case err != nil:
		return c, err
	case next == c:
		return c, nil
	}
	if err := next.validate(); err != nil {
		return c, err
	}
	if !next.follows(c) {
		return c, errOther
	}
	return next, s.lead(ctx, d, c, next)
}

// lead puts another configuration into effect and says so.
func (s *Supervisor) lead(ctx context.Context, d *control, was, c configuration) error {
	if err := d.limit(ctx, was, c); err != nil {
		return err
	}
	return s.announce(ctx, c)
}

// announce tells the agent that the daemon serves under the configuration.
func (s *Supervisor) announce(ctx context.Context, c configuration) error {
	klog.FromContext(ctx).Info("The daemon serves", "devices", c.Visible, "activeThreadPercentage", c.ActiveThreadPercentage, "pinnedMemoryBytes", c.PinnedMemoryBytes)
	if !s.state.Serving {
		s.state.Since = time.Now()
	}
	s.state.Serving, s.state.Config = true, c
	if err := s.save(); err != nil {
		return err
	}
	return lock.Try(s.lock, lock.Exclusive, lock.Byte(servingByte))
}

// withdraw tells the agent that no daemon serves.
func (s *Supervisor) withdraw() error {
	if !s.state.Serving {
		return nil
	}
	s.state.Serving, s.state.Since = false, time.Now()
	return errors.Join(lock.Release(s.lock, lock.Byte(servingByte)), s.save())
}

// count writes down that a daemon ended or could not be started.
func (s *Supervisor) count(ctx context.Context, c configuration, failure error) {
	s.state.Config = c
	s.state.Restarts++
	s.complain(ctx, failure)
}

// complain writes an error down.
func (s *Supervisor) complain(ctx context.Context, failure error) {
	s.state.LastError, s.state.LastErrorAt = failure.Error(), time.Now()
	if err := s.save(); err != nil {
		klog.FromContext(ctx).Error(err, "The state could not be written")
	}
}

// save writes the state. A folder that was removed takes none: whoever removed it wants to know nothing.
func (s *Supervisor) save() error {
	if err := write(s.Folder, stateName, s.state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// trim empties logs that became too large. A daemon that writes on at its old place leaves a hole, which
// takes no memory.
func (s *Supervisor) trim(ctx context.Context) {
	files, err := filepath.Glob(filepath.Join(s.Folder, logName, "*"))
	for _, path := range files {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Blocks*512 > logLimit {
			err = errors.Join(err, os.Truncate(path, 0))
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The daemon's logs grow")
	}
}

// sleep waits for the time or the end of ctx.
func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
