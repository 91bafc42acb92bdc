package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Records are the claims, Inventory the GPUs, Driver sets the limits.
	Records   Records
	Inventory prepare.Inventory
	Driver    Driver
	// Failed is called for each claim of a container that does not start because its memory cannot be limited. It must not block.
	Failed func(claim prepare.Ref, cause error)
}

// Records reads the record of a claim (prepare.Records).
type Records interface {
	Load(uid string) (prepare.Record, error)
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
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		connection, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("serve the limits of GPU memory: %w", err)
		}
		calls.Go(func() { s.serve(ctx, connection) })
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
	records := map[string]prepare.Record{}
	var err error
	for _, d := range request.Devices {
		if _, known := records[d.Claim]; known || err != nil {
			continue
		}
		records[d.Claim], err = s.Records.Load(d.Claim)
		if errors.Is(err, prepare.ErrNoRecord) {
			err = fmt.Errorf("device %s: %w", d, errNotPrepared)
		}
	}
	if err == nil {
		err = s.record(request)
	}
	if err == nil {
		err = s.apply(ctx, request, records)
	}
	if err != nil && !errors.Is(err, gpu.ErrNoDriver) {
		for _, r := range records {
			if r.UID != "" {
				s.Failed(r.Ref, err)
			}
		}
	}
	return err
}

func (s *Server) apply(ctx context.Context, request hook.LimitRequest, records map[string]prepare.Record) error {
	node := s.Inventory.Node()
	limiterOf := func(name string) gpu.Limiter {
		g, _ := node.Find(name)
		return g.Limiter
	}
	limits, err := sum(request.Devices, records, limiterOf)
	if err != nil {
		return err
	}
	folder := filepath.Join(s.Hierarchy, request.Group)
	for _, l := range limits {
		if err := checkController(folder, string(limiterOf(l.gpu))); err != nil {
			return err
		}
		if err := s.Driver.LimitMemory(ctx, l.gpu, folder, l.bytes); err != nil {
			return err
		}
	}
	klog.FromContext(ctx).V(2).Info("Limited the GPU memory of a container", "group", request.Group, "limits", limits)
	return nil
}

// checkController returns an error if the group does not have the controller: the driver would then charge a group above, and accept a limit that never
// binds.
func checkController(folder, controller string) error {
	text, err := os.ReadFile(filepath.Join(folder, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("find the container's control group: %w", err)
	}
	if !slices.Contains(strings.Fields(string(text)), controller) {
		return fmt.Errorf("the container's control group lacks the controller %s, which its runtime must enable for containers (runc does): its memory cannot be limited", controller)
	}
	return nil
}
