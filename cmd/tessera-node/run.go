package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/internal/capability"
	"github.com/tessera-gpu/tessera/internal/tracing"
	"github.com/tessera-gpu/tessera/kubelet-plugin/gpunode"
)

// collectAt is the garbage, in percent of the live heap, at which the garbage collector runs. The agent runs on every GPU node
// and allocates little, so that memory matters more than the CPU time of twice as many collections as by default.
const collectAt = 50

// run runs the agent. It returns nil after ctx has ended, and an error if the agent cannot start or serve.
func run(ctx context.Context, c config) error {
	if c.node == "" {
		return errors.New("--node-name, or NODE_NAME in the environment: must be the name of the Kubernetes node")
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", c.node))
	stopTracing, err := tracing.Start(ctx, "tessera-node", buildInfo().version)
	if err != nil {
		return err
	}
	defer stopTracing(context.WithoutCancel(ctx)) //nolint:errcheck // errors are logged
	clients, err := connect(c.kubeconfig)
	if err != nil {
		return err
	}
	a, err := assemble(ctx, c, clients)
	if err != nil {
		return err
	}
	defer a.close(ctx)
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		a.inventory.Run, a.monitor.Run, a.server.Run, a.status.Run, a.endpoint.Run, a.limitMemory, a.lead, a.upkeep, a.watchDaemons, a.pulse, clients.refuseOldServer,
	} {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// clients are the clients of the API server.
type clients struct {
	kubernetes.Interface
	gpuNodes gpunode.Client
}

// checkAgain is the interval of checks of an API server that does not respond.
const checkAgain = 10 * time.Second

// refuseOldServer returns an error if the API server is too old. It runs in parallel with the agent's other parts, because an agent
// also serves running pods while the API server is away.
func (c clients) refuseOldServer(ctx context.Context) error {
	var refused error
	err := wait.PollUntilContextCancel(ctx, checkAgain, true, func(context.Context) (bool, error) {
		_, err := capability.Detect(c.Discovery())
		if errors.Is(err, capability.ErrTooOld) {
			refused = err
		}
		return err == nil || refused != nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	return refused
}

// connect returns clients of the API server, without a rate limit: kubelet's limit of pods bounds the requests, and with the
// default limit 56 claims take nine seconds.
func connect(kubeconfig string) (clients, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return clients{}, fmt.Errorf("load the in-cluster configuration: %w", err)
	}
	access.QPS = -1
	access.UserAgent = "tessera-node"
	access.ContentType = "application/vnd.kubernetes.protobuf"
	access.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return clients{}, fmt.Errorf("load the in-cluster configuration: %w", err)
	}
	nodes, err := gpunode.NewClient(access)
	return clients{Interface: client, gpuNodes: nodes}, err
}
