package nvml

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Config has the paths of the driver and the hardware.
type Config struct {
	// Library returns the path of the driver's libnvidia-ml.so.1 as this process sees it, and an error while no driver
	// is installed. It is called every few seconds.
	Library func() (string, error)
	// Nodes makes the device nodes that the library opens. It is called before each connection; nil makes none.
	Nodes func(context.Context) error
	// SysRoot is the path of the host's sysfs, such as /sys.
	SysRoot string
	// Cgroups is the folder of the host's control groups of version 2, such as /sys/fs/cgroup; empty if no limits are set.
	Cgroups string
}

// Session is the agent's connection to the driver. It is safe for concurrent use: calls run in parallel, and only
// Reopen, Close and Disconnected exclude them. A process has at most one open session.
//
// While the session is closed, every method except Driver, Reopen, Close and Present fails with an error that wraps
// gpu.ErrNoDriver; so does a call that finds the driver removed or replaced, and then Reopen is needed. NVML calls
// cannot be interrupted: a context is checked only before the first of them.
type Session struct {
	library func() (string, error)
	nodes   func(context.Context) error
	sysfs   sysfs
	cgroups cgroups
	changes changes

	// connection is used during every call and locked while the connection changes. modes is used during every call
	// but the wait for events, and locked while the MIG mode of a GPU changes, which would be delayed by that wait.
	// Connection is used before modes.
	connection, modes gate
	node              *node
	// reading serializes Read, which completes the cached facts of the connection.
	reading sync.Mutex
	// joined are the GPUs that have joined their NVLink fabric since the process started; refused are those whose MIG mode needs a
	// reset although the driver does not report that. Both outlive connections, which a reset ends.
	joined, refused gpuSet
	// models outlives connections, so that equal GPUs share one geometry across them.
	models models
}

// gpuSet is a set of GPUs, by name, to which GPUs are only added. It is safe for concurrent use.
type gpuSet struct {
	mutex sync.Mutex
	names []string
}

func (s *gpuSet) has(name string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Contains(s.names, name)
}

func (s *gpuSet) add(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// node is the cached facts of the machine of one connection.
type node struct {
	library     nvml.Interface
	driver      string
	cuda        string
	devices     []*device
	relatedness map[pair]gpu.Link
	sets        eventSets
	// limiter is nil until it is known.
	limiter *gpu.Limiter
}

// New returns a closed session; Reopen opens it.
func New(c Config) *Session {
	return &Session{library: c.Library, nodes: c.Nodes, sysfs: sysfs(c.SysRoot), cgroups: newCgroups(c.Cgroups)}
}

// Driver returns a fingerprint of the installed driver, which changes when another driver is installed or loaded; empty
// while there is none. It costs a few stat calls and needs no open session.
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

// Reopen waits for the calls in progress, ends the connection, if there is one, and connects to the driver that is
// installed now. After an error the session is closed; an error that wraps gpu.ErrNoDriver has the number of GPUs on the
// PCI bus. If ctx ends while a call that hangs holds the connection, the connection stays as it is.
func (s *Session) Reopen(ctx context.Context) error {
	if err := s.connection.lock(ctx); err != nil {
		return fmt.Errorf("reopen the driver: %w", err)
	}
	defer s.connection.unlock()
	s.close()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("open the driver for %d NVIDIA GPUs on the PCI bus: %w", len(s.sysfs.gpus()), err)
	}
	return nil
}

// Close waits for the calls in progress, at most closeTimeout, and ends the connection. If a call hangs in the driver
// for longer, the connection stays open until the process ends. Closing a closed session does nothing.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.connection.lock(ctx) != nil {
		return
	}
	defer s.connection.unlock()
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
	// Another version has another file name behind the link, and the dynamic linker identifies libraries by name.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrNoDriver, err)
	}
	if s.nodes != nil {
		if err := s.nodes(ctx); err != nil {
			return err
		}
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

// cudaVersion returns the text of NVML's version number: 13000 is 13.0.
func cudaVersion(number int) string { return fmt.Sprintf("%d.%d", number/1000, number%1000/10) }

// noValue is the result of an operation that only succeeds or fails.
type noValue struct{}

// withGPU calls f with the GPU and keeps the connection from changing meanwhile. The error names neither the operation
// nor the GPU; the caller adds them.
func withGPU[T any](ctx context.Context, s *Session, gpuName string, f func(*gpuInfo) (T, error)) (T, error) {
	var none T
	if err := s.useConnection(ctx); err != nil {
		return none, err
	}
	defer s.leaveConnection()
	d, err := s.find(gpuName)
	if err != nil {
		return none, err
	}
	return f(d.info.Load())
}

// closeTimeout is how long Close waits for calls in progress.
const closeTimeout = 10 * time.Second

// useConnection keeps the connection from changing and the MIG modes from being set; the caller calls leaveConnection.
func (s *Session) useConnection(ctx context.Context) error {
	if err := s.connection.use(ctx); err != nil {
		return err
	}
	if err := s.modes.use(ctx); err != nil {
		s.connection.leave()
		return err
	}
	return nil
}

func (s *Session) leaveConnection() {
	s.modes.leave()
	s.connection.leave()
}

// find returns the GPU, whose info is not nil.
func (s *Session) find(gpuName string) (*device, error) {
	if s.node == nil {
		return nil, gpu.ErrNoDriver
	}
	for _, d := range s.node.devices {
		if known := d.info.Load(); known != nil && known.name == gpuName {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no such GPU responds: %w", gpu.ErrLost)
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
