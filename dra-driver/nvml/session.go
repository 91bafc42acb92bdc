package nvml

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Config says where a Session finds the driver and the hardware.
type Config struct {
	// Library returns the path of the driver's libnvidia-ml.so.1 as this process sees it, and an error
	// while no driver is installed. It is asked every few seconds.
	Library func() (string, error)
	// SysRoot is where the host's sysfs is seen, such as /sys.
	SysRoot string
}

// Session is the agent's connection to the driver. It is safe for concurrent use: calls run side by
// side and only Reopen, Close and Apart wait for them. A process has at most one open session.
//
// While the session is closed, every method but Driver, Reopen and Close fails with an error that
// wraps gpu.ErrNoDriver; so does a call that finds the driver gone or replaced, and then Reopen is
// what helps. NVML calls cannot be interrupted: a context is looked at before the first of them.
type Session struct {
	library func() (string, error)
	sysfs   sysfs

	// mu is held for reading during every call and for writing while the connection changes; enter and exclude alone take it. wanted is until
	// when no new call enters, in nanoseconds, so that who changes the connection has its turn.
	mu     sync.RWMutex
	wanted atomic.Int64
	node   *node
	// reading serializes Read, which completes what the connection knows.
	reading sync.Mutex
	// models outlives connections, so that equal GPUs share one geometry whatever happens.
	models models
}

// node is what one connection knows of the machine.
type node struct {
	library     nvml.Interface
	driver      string
	cuda        string
	devices     []*device
	relatedness map[pair]gpu.Link
	sets        eventSets
}

// New returns a closed session; Reopen opens it.
func New(c Config) *Session {
	return &Session{library: c.Library, sysfs: sysfs(c.SysRoot), models: models{}}
}

// Driver returns a fingerprint of the installed driver, which differs when another one was installed
// or loaded; it is empty while there is none. It costs a few stat calls and needs no open session.
func (s *Session) Driver() string {
	path, err := s.library()
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	inode := uint64(0)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return fmt.Sprintf("%s inode %d size %d of %d, module %s", path, inode, info.Size(), info.ModTime().UnixNano(), s.sysfs.module())
}

// Reopen ends the connection, if there is one, once the calls in progress are through, and connects
// to the driver that is installed now. After an error the session is closed; one that wraps
// gpu.ErrNoDriver says how many GPUs wait for a driver. When ctx ends while a call that hangs keeps the connection, that stays as it is.
func (s *Session) Reopen(ctx context.Context) error {
	if err := s.lockConnection(ctx); err != nil {
		return fmt.Errorf("open the driver again: %w", err)
	}
	defer s.mu.Unlock()
	s.close()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("open the driver for %d NVIDIA GPUs on the PCI bus: %w", len(s.sysfs.gpus()), err)
	}
	return nil
}

// Close ends the connection once the calls in progress are through; while one hangs in the driver, it leaves that to the end of the process.
// Closing a closed session does nothing.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.lockConnection(ctx) != nil {
		return
	}
	defer s.mu.Unlock()
	s.close()
}

func (s *Session) close() {
	if s.node != nil {
		s.node.sets.end()
		disconnect(s.node.library)
		s.node = nil
	}
}

func (s *Session) open(ctx context.Context) error {
	path, err := s.library()
	if err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrNoDriver, err)
	}
	// Another version has another file name behind the link, and the dynamic linker goes by names.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrNoDriver, err)
	}
	library, err := connect(path)
	if err != nil {
		return err
	}
	if s.node, err = newNode(library); err != nil {
		disconnect(library)
		return err
	}
	for _, d := range s.node.devices {
		if _, err := s.gpuInfo(ctx, d); err != nil {
			klog.FromContext(ctx).V(2).Info("GPU does not respond, each Read retries", "index", d.index, "err", err)
		}
	}
	return nil
}

func newNode(library nvml.Interface) (*node, error) {
	var a calls
	n := &node{
		library:     library,
		driver:      query(&a, "nvmlSystemGetDriverVersion", library.SystemGetDriverVersion),
		cuda:        cudaVersion(query(&a, "nvmlSystemGetCudaDriverVersion", library.SystemGetCudaDriverVersion_v2)),
		relatedness: map[pair]gpu.Link{},
	}
	for index := range query(&a, "nvmlDeviceGetCount", library.DeviceGetCount) {
		n.devices = append(n.devices, &device{index: index})
	}
	if a.err != nil {
		return nil, a.err
	}
	return n, nil
}

// cudaVersion returns the text of NVML's number: 13000 is 13.0.
func cudaVersion(number int) string { return fmt.Sprintf("%d.%d", number/1000, number%1000/10) }

// noValue is the answer of an operation that only succeeds or fails.
type noValue struct{}

// withGPU runs f with the GPU while the connection stays as it is. The caller knows what it asked of which
// GPU, so the error says neither.
func withGPU[T any](ctx context.Context, s *Session, gpuName string, f func(*gpuInfo) (T, error)) (T, error) {
	var none T
	if err := s.useConnection(ctx); err != nil {
		return none, err
	}
	defer s.mu.RUnlock()
	known, err := s.find(gpuName)
	if err != nil {
		return none, err
	}
	return f(known)
}

const (
	// pollDelay is how often a call that waits for the connection looks whether it may.
	pollDelay = 5 * time.Millisecond
	// precedence is how long calls wait for one who is to change the connection. Calls are short: who did not get it by then waits for one
	// that hangs, and the others must not wait with it. They go on for as long before they wait again.
	precedence = 2 * time.Second
	// closeTimeout is how long Close waits for calls in progress.
	closeTimeout = 10 * time.Second
)

// useConnection keeps the connection as it is until mu is given back, once nobody changes it. A caller whose time ends before that is told so: a look
// at a GPU must be able to tell one that hangs from a connection that is being opened, or kept apart, for another.
func (s *Session) useConnection(ctx context.Context) error {
	for ctx.Err() == nil {
		if time.Now().UnixNano() >= s.wanted.Load() && s.mu.TryRLock() {
			return nil
		}
		sleep(ctx, pollDelay)
	}
	return ctx.Err()
}

// lockConnection waits until the calls in progress are through and keeps others out until mu is given back. It does not queue at mu, where it would
// keep every other call out for as long as one hangs in the driver: it has precedence again and again, and the others their turn in between.
func (s *Session) lockConnection(ctx context.Context) error {
	var until time.Time
	defer func() { s.wanted.CompareAndSwap(until.UnixNano(), 0) }()
	for ctx.Err() == nil {
		if now := time.Now(); now.Sub(until) >= precedence {
			until = now.Add(precedence)
			s.wanted.Store(until.UnixNano())
		}
		if s.mu.TryLock() {
			return nil
		}
		sleep(ctx, pollDelay)
	}
	return fmt.Errorf("an earlier call of the driver does not return, or a reset is in progress: %w", ctx.Err())
}

func (s *Session) find(gpuName string) (*gpuInfo, error) {
	if s.node == nil {
		return nil, gpu.ErrNoDriver
	}
	for _, d := range s.node.devices {
		if known := d.info.Load(); known != nil && known.name == gpuName {
			return known, nil
		}
	}
	return nil, fmt.Errorf("no such GPU answers: %w", gpu.ErrLost)
}

// cString returns the string in a fixed C array.
func cString(array []int8) string {
	var b strings.Builder
	for _, c := range array {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
