package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Config is what a Server needs. All fields but PodUID and Rules are required.
type Config struct {
	// Driver is the name of the DRA driver, Node that of the Kubernetes node.
	Driver, Node string
	// PodUID names the agent's pod, so that two agents may overlap. Empty means that there is only
	// ever one.
	PodUID string
	// PluginDir holds the socket that serves claims, RegistryDir the one where kubelet finds it. Both
	// exist and have the same path for kubelet.
	PluginDir, RegistryDir string
	// Client reads claims.
	Client kubernetes.Interface
	// Claims does the work.
	Claims Claims
	// Translate reads an allocated claim.
	Translate Translate
	// Status reports to the claims' users.
	Status Status
	// Health returns the faults of the GPUs, whose texts follow Rules.
	Health Health
	Rules  gpu.Rules
	// Metrics counts.
	Metrics *Metrics
	// MetadataDir is the folder of CDI specs on a node whose GPUs are for virtual machines: containers get files with the addresses of their GPUs
	// (KEP-5304), which KubeVirt reads. Empty: no files are written.
	MetadataDir string
}

// Claims prepares and unprepares claims. Implementations are safe for concurrent use, and both calls may be repeated at any time.
type Claims interface {
	Prepare(ctx context.Context, claim prepare.Claim) ([]prepare.Answer, error)
	Unprepare(ctx context.Context, claim prepare.Ref) error
}

// Translate reads from an allocated claim which devices of this driver it holds and how they are to
// be prepared. Its error is shown to the claim's user.
type Translate func(*resourceapi.ResourceClaim) (prepare.Claim, error)

// verbosity is the log level from which requests and answers are logged in full.
const verbosity = 6

// Server is the agent as kubelet sees it.
type Server struct {
	Config
	registered atomic.Bool
	// begun and ended count calls.
	begun, ended atomic.Int64
	// fatal receives the first error after which the process cannot serve any more.
	fatal chan error
}

// New returns a server that does nothing until Run.
func New(config Config) *Server {
	return &Server{Config: config, fatal: make(chan error, 1)}
}

// Run serves kubelet until ctx ends. Then calls in progress come to their end, within limits, and it
// returns nil after the sockets are gone. It returns an error when serving cannot start or breaks.
func (s *Server) Run(ctx context.Context) error {
	if err := removeStaleSockets(ctx, s.Driver, s.PluginDir, s.RegistryDir); err != nil {
		return err
	}
	// The helper would cut off calls at once when its context ends.
	helper, err := kubeletplugin.Start(context.WithoutCancel(ctx), &plugin{s}, s.options()...)
	if err != nil {
		return fmt.Errorf("serve kubelet: %w", err)
	}
	defer helper.Stop()
	select {
	case <-ctx.Done():
		s.drain(ctx)
		return nil
	case err := <-s.fatal:
		return err
	}
}

func (s *Server) options() []kubeletplugin.Option {
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(s.Driver),
		kubeletplugin.NodeName(s.Node),
		kubeletplugin.KubeClient(s.Client),
		kubeletplugin.PluginDataDirectoryPath(s.PluginDir),
		kubeletplugin.RegistrarDirectoryPath(s.RegistryDir),
		kubeletplugin.RollingUpdate(types.UID(s.PodUID)),
		kubeletplugin.Serialize(false),
		kubeletplugin.GRPCVerbosity(verbosity),
		kubeletplugin.GRPCInterceptor(s.watchRegistration),
		kubeletplugin.GRPCInterceptor(traced),
	}
	if s.MetadataDir != "" {
		versions := []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}
		options = append(options, kubeletplugin.EnableDeviceMetadata(true, versions), kubeletplugin.CDIDirectory(s.MetadataDir))
	}
	return options
}

// On shutdown the server keeps serving until no call has arrived for drainIdle, at most drainTimeout, which is less than the grace period of a pod.
const (
	drainIdle    = 500 * time.Millisecond
	drainTimeout = 20 * time.Second
)

// drain deregisters, so that kubelet calls another agent if there is one, and waits until the calls in progress have ended.
func (s *Server) drain(ctx context.Context) {
	if err := os.Remove(s.registration()); err != nil && !errors.Is(err, os.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Deregistration failed: kubelet may call this agent while it shuts down")
	}
	end := time.After(drainTimeout)
	for {
		ended, begun := s.ended.Load(), s.begun.Load()
		select {
		case <-time.After(drainIdle):
		case <-end:
			klog.FromContext(ctx).Info("Shutting down with calls in progress", "after", drainTimeout)
			return
		}
		if ended == begun && begun == s.begun.Load() {
			return
		}
	}
}

// registration is the path of the socket where kubelet finds the plugin.
func (s *Server) registration() string {
	if s.PodUID == "" {
		return filepath.Join(s.RegistryDir, s.Driver+"-reg.sock")
	}
	return filepath.Join(s.RegistryDir, kubeletplugin.RollingUpdateRegistrarSocketFile(s.RegistryDir, s.Driver, types.UID(s.PodUID)))
}

// Registered reports whether kubelet accepted the plugin.
func (s *Server) Registered() bool { return s.registered.Load() }

// HandleError is called by the helper for background errors. Recoverable ones are logged, any other ends Run.
func (p *plugin) HandleError(ctx context.Context, err error, msg string) {
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		klog.FromContext(ctx).Error(err, "Background error, retrying", "doing", msg)
		return
	}
	select {
	case p.fatal <- fmt.Errorf("serve kubelet: %s: %w", msg, err):
	default:
	}
}
