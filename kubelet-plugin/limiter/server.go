package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	extension = ".sock"
	// callTimeout limits one request, of at most maxRequest bytes.
	callTimeout = 30 * time.Second
	maxRequest  = 1 << 20
)

// Config is what a Server needs. Everything is required.
type Config struct {
	// Sockets is the folder of the sockets of all agents of the node, under the same path as on the host; Name is the name of this agent's.
	Sockets, Name string
	// Hierarchy is the folder of the host's control groups of version 2.
	Hierarchy string
	// Containers is the folder of the records of limited containers, for all agents of the node.
	Containers string
	// Records are the claims, Claims locks one, Inventory are the GPUs, Driver sets the limits.
	Records   Records
	Claims    Claims
	Inventory prepare.Inventory
	Driver    Driver
	// Failed is called for each claim of a container that does not start because its memory cannot be limited. It must not block.
	Failed func(claim prepare.Ref, cause error)
	// Resized is called after Resize has changed the limit of a claim, with a sentence about it. It must not block.
	Resized func(claim prepare.Ref, text string)
}

// Records reads and writes the records of claims (prepare.Records).
type Records interface {
	Load(uid string) (prepare.Record, error)
	Save(r prepare.Record) error
	List() ([]prepare.Record, error)
}

// Claims locks claims (prepare.Preparer).
type Claims interface {
	LockPrepared(ctx context.Context, claim prepare.Ref) (r prepare.Record, unlock func(), err error)
}

// Driver limits memory. Implementations are safe for concurrent use.
type Driver interface {
	// LimitMemory returns nil only if the limit is in effect.
	LimitMemory(ctx context.Context, gpuName, folder string, bytes uint64) error
	// MemoryLimit returns the limit and what is allocated, in bytes.
	MemoryLimit(ctx context.Context, gpuName, folder string) (limit, used uint64, err error)
}

// Server serves the requests of hooks.
type Server struct{ Config }

// New returns a Server.
func New(c Config) *Server { return &Server{c} }

// Run serves until ctx ends, and then removes the socket. Requests are served concurrently.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("serve the limits of GPU memory: %w", err)
	}
	defer listener.Close() //nolint:errcheck // it is closed already if ctx has ended
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	calls.Go(func() { s.restore(ctx) })
	for {
		connection, err := listener.Accept()
		switch {
		case err == nil: // also if ctx has just ended
			calls.Go(func() { s.serve(ctx, connection) })
		case ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("serve the limits of GPU memory: %w", err)
		}
	}
}

// listen opens the socket, which only root can open, and removes those of agents that were killed.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if err := disk.MakeFolder(nil, s.Sockets, 0o700); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(s.Sockets, "*"+extension))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if connection, err := net.DialTimeout("unix", path, time.Second); err == nil {
			connection.Close()
			continue
		}
		if err := disk.RemoveIfExists(nil, path); err != nil {
			return nil, err
		}
	}
	return new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(s.Sockets, s.Name+extension))
}

// serve serves one connection with one request.
func (s *Server) serve(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var request hook.LimitRequest
	deadline, _ := ctx.Deadline()
	err := connection.SetDeadline(deadline)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(connection, maxRequest)).Decode(&request)
	}
	if errors.Is(err, io.EOF) {
		return // another agent has checked whether this one runs
	}
	if err == nil {
		err = s.limit(ctx, request)
	}
	var answer hook.LimitAnswer
	if err != nil {
		klog.FromContext(ctx).Error(err, "GPU memory of a container is not limited", "group", request.Group, "devices", request.Devices)
		// A driver that is being replaced comes back.
		answer = hook.LimitAnswer{Error: diagnosis.Clip(err.Error()), Retry: errors.Is(err, gpu.ErrNoDriver)}
	}
	_ = json.NewEncoder(connection).Encode(answer)
}

// limit sets the limits of a container, and reports on its claims that it does not start because they are not in effect.
func (s *Server) limit(ctx context.Context, request hook.LimitRequest) error {
	if err := validate(request); err != nil {
		return err
	}
	// The container is recorded before the records of its claims are read, so that Resize changes its limits too.
	if err := s.record(request); err != nil {
		return err
	}
	err := s.apply(ctx, request)
	if err != nil && !errors.Is(err, gpu.ErrNoDriver) {
		for _, uid := range claimsOf(request) {
			if r, unread := s.Records.Load(uid); unread == nil {
				s.Failed(r.Ref, err)
			}
		}
	}
	return err
}

// apply sets the limits of a container that follow from the records. If these change meanwhile (Resize), it sets the new ones.
func (s *Server) apply(ctx context.Context, request hook.LimitRequest) error {
	limits, err := s.limitsOf(request, nil)
	for err == nil {
		if err = s.set(ctx, request.Group, limits); err != nil {
			return err
		}
		var now []limit
		if now, err = s.limitsOf(request, nil); slices.Equal(now, limits) {
			break
		}
		limits = now
	}
	return err
}

// limitsOf returns the limits of a container. A record in changed replaces the one that is stored.
func (s *Server) limitsOf(request hook.LimitRequest, changed map[string]prepare.Record) ([]limit, error) {
	records := maps.Clone(changed)
	if records == nil {
		records = map[string]prepare.Record{}
	}
	for _, uid := range claimsOf(request) {
		if _, known := records[uid]; known {
			continue
		}
		r, err := s.Records.Load(uid)
		if errors.Is(err, prepare.ErrNoRecord) {
			err = fmt.Errorf("claim %s: %w", uid, errNotPrepared)
		}
		if err != nil {
			return nil, err
		}
		records[uid] = r
	}
	limits, err := sum(request.Devices, records, s.limiterOf)
	if err == nil && request.ToolkitLimits && slices.ContainsFunc(limits, limit.isPromised) {
		return nil, errToolkitLimits
	}
	return limits, err
}

func (s *Server) limiterOf(gpuName string) gpu.Limiter {
	g, _ := s.Inventory.Node().Find(gpuName) // nothing limits one that is missing
	return g.Limiter
}

// set sets the limits of a control group, and checks that they are in effect. Without the controller, there is nothing to set for a GPU whose memory is not
// promised to be limited: the group can have no limit.
func (s *Server) set(ctx context.Context, group string, limits []limit) error {
	folder := filepath.Join(s.Hierarchy, group)
	for _, l := range limits {
		err := checkController(folder, string(s.limiterOf(l.gpu)))
		if errors.Is(err, errNoController) && !l.promised {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.Driver.LimitMemory(ctx, l.gpu, folder, l.bytes); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).V(2).Info("Limited the GPU memory of a container", "group", group, "limits", limits)
	return nil
}

// restore sets the limits of all containers again, because an agent that was killed within Resize can have left others.
func (s *Server) restore(ctx context.Context) {
	containers, err := s.containers(ctx)
	for _, c := range containers {
		err = errors.Join(err, s.restoreContainer(ctx, c))
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "GPU memory limits of running containers are not as their claims demand")
	}
}

// restoreContainer sets the limits of a container under the locks of its claims: during Resize, it could set the former limit for a moment, in which a process
// allocates more than the new one.
func (s *Server) restoreContainer(ctx context.Context, c hook.LimitRequest) error {
	for _, uid := range slices.Sorted(slices.Values(claimsOf(c))) {
		r, err := s.Records.Load(uid)
		if err == nil {
			var unlock func()
			if _, unlock, err = s.Claims.LockPrepared(ctx, r.Ref); err == nil {
				defer unlock()
			}
		}
		switch {
		case errors.Is(err, prepare.ErrNoRecord):
			return nil // the claim is released: the container has ended
		case err != nil:
			return err
		}
	}
	return s.apply(ctx, c)
}

var (
	errNoController  = errors.New("the container's control group lacks the controller")
	errToolkitLimits = errors.New("the container also has a GPU from NVIDIA's toolkit, whose hook " + hook.ToolkitLimits + " replaces the limits with those of " +
		"NVIDIA_GPU_MEMORY_LIMIT and NVIDIA_GPU_MEMORY_REQUEST: remove that GPU, or these variables, from the pod")
)

// checkController returns errNoController if the group does not have the controller: the driver would then charge a group above, and accept a limit that never
// binds.
func checkController(folder, controller string) error {
	text, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("find the container's control group: %w", err)
	}
	if !slices.Contains(strings.Fields(string(text)), controller) {
		return fmt.Errorf("%w %s, which its runtime must enable for containers (runc does, crun does not): its memory cannot be limited", errNoController, controller)
	}
	return nil
}
