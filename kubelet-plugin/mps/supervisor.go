package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// Intervals and delays of the supervisor.
const (
	// configPeriod is the interval at which the configuration is read.
	configPeriod = 100 * time.Millisecond
	// A daemon that ended is restarted after minRestartDelay, which doubles up to maxRestartDelay with each end before
	// the daemon has run for stableDuration.
	minRestartDelay = 100 * time.Millisecond
	maxRestartDelay = 10 * time.Second
	stableDuration  = time.Minute
	// limitRetryDelay is the delay before other limits are attempted again.
	limitRetryDelay = time.Second
	// evictDelay is how long other processes may hold the lock before they are killed.
	evictDelay = 5 * time.Second
	// logPeriod is the interval at which the sizes of the daemon's logs are checked, logLimit the maximum size of one in
	// bytes: the logs are kept in memory.
	logPeriod = 10 * time.Second
	logLimit  = 8 << 20
)

// SupervisorConfig has the parameters of a supervisor.
type SupervisorConfig struct {
	// Folder is the daemon's folder.
	Folder string
	// Pod is the UID of the pod in which the supervisor runs.
	Pod string
	// SharedMemory is the path of the volume that the daemon shares with its clients: /dev/shm.
	SharedMemory string
	// Program returns the driver's program. It is called at every start of the daemon, because the driver may be
	// installed, removed or replaced.
	Program func() (Program, error)
	// Files is the file system of the state; nil means the host's.
	Files disk.FileSystem
}

// Supervisor runs one daemon. It is not safe for concurrent use.
type Supervisor struct {
	SupervisorConfig
	lock  *os.File
	state state
	// evictDelay and timeouts are the constants, except in tests.
	evictDelay time.Duration
	timeouts   timeouts
}

// NewSupervisor returns a supervisor that has not been started.
func NewSupervisor(c SupervisorConfig) *Supervisor {
	return &Supervisor{SupervisorConfig: c, evictDelay: evictDelay, timeouts: timeouts{start: startTimeout, command: commandTimeout, quit: quitTimeout}}
}

// Run keeps the daemon running with its configuration until ctx ends, then ends it and returns nil. Without a
// configuration no daemon runs. A daemon that cannot be started, or ends, is not an error: the failure is written into
// the state and the daemon is restarted.
//
// Run needs its own process: it adopts orphans and kills every child when a daemon has ended.
func (s *Supervisor) Run(ctx context.Context) error {
	if s.Pod == "" {
		return errors.New("supervise an MPS daemon: the UID of the pod is unknown")
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	if err := s.acquireLock(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("supervise the MPS daemon in %s: %w", s.Folder, err)
	}
	defer s.lock.Close() //nolint:errcheck // the process ends
	if err := s.loadFormerState(); err != nil {
		return err
	}
	pause := minRestartDelay
	for ctx.Err() == nil {
		began := time.Now()
		c, err := read[configuration](s.Folder, configName)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			sleep(ctx, configPeriod)
			continue
		case err == nil:
			err = s.serve(ctx, c)
		}
		if err == nil || ctx.Err() != nil {
			pause = minRestartDelay
			continue
		}
		if time.Since(began) > stableDuration {
			pause = minRestartDelay
		}
		klog.FromContext(ctx).Error(err, "The daemon ended or did not start", "pause", pause)
		s.recordFailure(ctx, c, err)
		sleep(ctx, pause)
		pause = min(2*pause, maxRestartDelay)
	}
	return nil
}

// acquireLock takes the lock for the life of the process. A process that holds it for longer than evictDelay belongs to
// an earlier supervisor of this daemon and is killed: no second daemon may run on the same devices.
func (s *Supervisor) acquireLock(ctx context.Context) error {
	path := filepath.Join(s.Folder, lockName)
	for last := time.Now().Add(s.evictDelay); ; sleep(ctx, configPeriod) {
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
			err = s.killLockHolders(ctx, file)
		}
		if closing := file.Close(); err != nil && !errors.Is(err, lock.ErrHeld) {
			return errors.Join(err, closing)
		}
	}
}

// killLockHolders kills the processes that hold the lock.
func (s *Supervisor) killLockHolders(ctx context.Context, file *os.File) error {
	pids, err := holders(file)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		klog.FromContext(ctx).Info("Killing a process of an earlier daemon", "pid", pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// loadFormerState loads the state of the former supervisor, and limits the volumes of the pod. If its daemon was still serving, it was killed, which is
// recorded.
func (s *Supervisor) loadFormerState() error {
	former, err := read[state](s.Folder, stateName)
	if err != nil {
		former = state{} // missing or unreadable
	}
	s.state = former
	if former.Config.Name != "" && former.Protocol == 0 {
		s.state.Protocol = version2 // of a supervisor before version 3
	}
	s.state.Pod, s.state.Serving = s.Pod, false
	if s.state.Volumes, err = s.limitVolumes(); err != nil {
		return err
	}
	if former.Serving {
		s.state.Restarts++
		s.state.LastError, s.state.LastErrorAt = "the daemon was killed with its supervisor", time.Now()
	}
	return s.save()
}

// serve runs one control daemon. It returns nil when ctx has ended or the configuration requires another daemon or none,
// and an error when the daemon failed. In each case the daemon has ended.
func (s *Supervisor) serve(ctx context.Context, c configuration) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	program, err := s.Program()
	if err != nil {
		return fmt.Errorf("find nvidia-cuda-mps-control: %w", err)
	}
	d, err := start(ctx, program, s.Folder, c, s.state.Protocol, s.lock, s.timeouts)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.clearServing())
		if ending := d.quit(ctx); ending != nil {
			klog.FromContext(ctx).Error(ending, "The daemon was not stopped cleanly")
		}
	}()
	if err := d.ready(ctx); err != nil {
		return err
	}
	if err := d.commands.begin(ctx, c); err != nil {
		return err
	}
	s.state.Protocol = d.protocol
	if err := s.setServing(ctx, c); err != nil {
		return err
	}
	return s.followConfiguration(ctx, d, c)
}

// followConfiguration applies changes of the configuration to a serving daemon. It returns like serve.
func (s *Supervisor) followConfiguration(ctx context.Context, d *control, c configuration) error {
	looks, logs := time.NewTicker(configPeriod), time.NewTicker(logPeriod)
	defer looks.Stop()
	defer logs.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.done:
			return d.exitError()
		case <-logs.C:
			s.truncateLogs(ctx)
			continue
		case <-looks.C:
		}
		next, err := s.update(ctx, d, c)
		switch {
		case errors.Is(err, errNeedsRestart):
			return nil
		case err != nil:
			// Clients depend on the daemon: it keeps running with its present limits.
			s.recordError(ctx, err)
			looks.Reset(limitRetryDelay)
		default:
			c = next
			looks.Reset(configPeriod)
		}
	}
}

// errNeedsRestart means that the configuration requires another daemon, or none.
var errNeedsRestart = errors.New("the requested daemon changed")

// update reads the configuration, applies it to a daemon with configuration c, and returns the one in effect.
func (s *Supervisor) update(ctx context.Context, d *control, c configuration) (configuration, error) {
	next, err := read[configuration](s.Folder, configName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, errNeedsRestart
	case err != nil:
		return c, err
	case reflect.DeepEqual(next, c):
		return c, nil
	}
	if err := next.validate(); err != nil {
		return c, err
	}
	if !d.commands.reaches(c, next) {
		return c, errNeedsRestart
	}
	return next, s.applyConfiguration(ctx, d, c, next)
}

// applyConfiguration puts another configuration into effect and records that.
func (s *Supervisor) applyConfiguration(ctx context.Context, d *control, was, c configuration) error {
	if err := d.commands.change(ctx, was, c); err != nil {
		return err
	}
	return s.setServing(ctx, c)
}

// setServing records for the agent that the daemon serves with the configuration.
func (s *Supervisor) setServing(ctx context.Context, c configuration) error {
	klog.FromContext(ctx).Info("The daemon serves", "devices", c.Visible, "protocol", s.state.Protocol, "activeThreadPercentage", c.ActiveThreadPercentage,
		"memoryLimits", c.memory(), "namespaces", c.Namespaces)
	if !s.state.Serving {
		s.state.Since = time.Now()
	}
	s.state.Serving, s.state.Config = true, c
	if err := s.save(); err != nil {
		return err
	}
	return lock.Try(s.lock, lock.Exclusive, lock.Byte(servingByte))
}

// clearServing records for the agent that no daemon serves.
func (s *Supervisor) clearServing() error {
	if !s.state.Serving {
		return nil
	}
	s.state.Serving, s.state.Since = false, time.Now()
	return errors.Join(lock.Release(s.lock, lock.Byte(servingByte)), s.save())
}

// recordFailure records that a daemon ended or could not be started.
func (s *Supervisor) recordFailure(ctx context.Context, c configuration, failure error) {
	s.state.Config = c
	s.state.Restarts++
	s.recordError(ctx, failure)
}

// recordError records an error.
func (s *Supervisor) recordError(ctx context.Context, failure error) {
	s.state.LastError, s.state.LastErrorAt = failure.Error(), time.Now()
	if err := s.save(); err != nil {
		klog.FromContext(ctx).Error(err, "The state could not be written")
	}
}

// save writes the state. A missing folder is not an error: the daemon was released.
func (s *Supervisor) save() error {
	if err := write(s.Files, s.Folder, stateName, s.state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// truncateLogs truncates logs that have become too large. If the daemon continues to write at its old offset, the file
// gets a hole, which uses no memory.
func (s *Supervisor) truncateLogs(ctx context.Context) {
	files, err := filepath.Glob(filepath.Join(s.Folder, logName, "*"))
	for _, path := range files {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Blocks*512 > logLimit {
			err = errors.Join(err, os.Truncate(path, 0))
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The daemon's logs could not be truncated")
	}
}

// sleep waits for pause or until ctx ends.
func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
