package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/dra-driver/inventory"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/dra-driver/pci"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
	"github.com/tessera-gpu/tessera/dra-driver/smi"
	"github.com/tessera-gpu/tessera/internal/host/bootid"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/liveness"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/exporter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/gpunode"
	"github.com/tessera-gpu/tessera/kubelet-plugin/handover"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/maintenance"
	"github.com/tessera-gpu/tessera/kubelet-plugin/monitoring"
	"github.com/tessera-gpu/tessera/kubelet-plugin/mps"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
	"github.com/tessera-gpu/tessera/kubelet-plugin/server"
	"github.com/tessera-gpu/tessera/kubelet-plugin/status"
)

// The folders of the driver's data. They are the same for every agent of the node.
const (
	claimsFolder    = "claims"
	locksFolder     = "locks"
	instancesFolder = "instances"
	gateFolder      = "maintenance"
	hooksFolder     = "hooks"
	healthFolder    = "health"
	limitsFolder    = "limits"
	// containersFolder is below limitsFolder.
	containersFolder = "containers"
)

// withoutPod is the instance name of an agent that runs outside of a pod, of which there is one at most.
const withoutPod = "agent"

// The implementations of the ports that the components declare.
var (
	_ prepare.TimeSlice = (*smi.Tool)(nil)
	_ prepare.Records   = (*checkpoint.Store)(nil)
	_ prepare.Specs     = (*cdi.Specs)(nil)
	_ prepare.Inventory = (*inventory.Inventory)(nil)
	_ prepare.Claims    = (*server.Reader)(nil)
	_ prepare.Gate      = (*maintenance.Gate)(nil)
	_ hardware          = (*nvml.Session)(nil)
	_ hardware          = (*pci.Bus)(nil)
	_ inventory.Records = (*checkpoint.Store)(nil)
	_ publish.Inventory = (*inventory.Inventory)(nil)
	_ health.Inventory  = (*inventory.Inventory)(nil)
	_ health.Records    = (*checkpoint.Store)(nil)
	_ health.Store      = (*checkpoint.Health)(nil)
	_ server.Claims     = (*prepare.Preparer)(nil)
	_ server.Status     = (*status.Reporter)(nil)
)

// agent is the parts of a running agent.
type agent struct {
	instance  *handover.Instance
	hardware  hardware
	inventory *inventory.Inventory
	monitor   *health.Monitor
	specs     *cdi.Specs
	preparer  *prepare.Preparer
	daemons   *mps.Pods
	publisher *publish.Publisher
	status    *status.Reporter
	server    *server.Server
	endpoint  endpoint
	// limiter is nil on a node for virtual machines.
	limiter *limiter.Server
	// liveness is the work whose hang requires a restart.
	liveness *liveness.Work
	// gpuNode is nil if the agent runs without an installer.
	gpuNode *gpunode.Controller
	// reconcileNow requests a reconciliation of the claims before the next period.
	reconcileNow chan struct{}
	// monitoring are the changes of the MIG mode that the driver refuses.
	monitoring *monitoring.Requests
}

// assemble creates the components and connects them. Once it has joined the node's agents, an older agent on the same node
// stops leading.
func assemble(ctx context.Context, c config, client clients) (_ *agent, err error) {
	boot, err := bootid.Read(c.Roots.Proc)
	if err != nil {
		return nil, err
	}
	program, err := c.installHook(ctx)
	if err != nil {
		return nil, err
	}
	records, err := checkpoint.Open(disk.Host{}, filepath.Join(c.data(), claimsFolder), logUnreadable(ctx))
	if err != nil {
		return nil, err
	}
	options, err := publishOptions(c, records)
	if err != nil {
		return nil, err
	}
	nodes := c.nodes()
	a := &agent{
		hardware: c.hardware(nodes.Ensure), daemons: c.daemons(client), reconcileNow: make(chan struct{}, 1), monitoring: c.monitoring(), liveness: newLiveness(),
	}
	// Opening the driver can take seconds. It precedes Join, because an agent that no longer leads does not save health
	// records.
	a.inventory = inventory.New(ctx, inventory.Config{Node: c.node, Hardware: a.hardware, Records: records})
	if a.instance, err = handover.Join(disk.Host{}, filepath.Join(c.data(), instancesFolder), cmp.Or(c.podUID, withoutPod)); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err = a.newMonitor(ctx, c, boot, records, registry); err != nil {
		return nil, err
	}
	a.specs = c.specs(ctx, program, nodes, a.instance.Leads)
	metrics, reader := server.NewMetrics(registry), server.NewReader(c.DriverName, client, a.inventory, c.consumers())
	a.status = status.New(status.Config{
		Driver: c.DriverName, Node: c.node, Pool: wire.PoolName(c.node, c.DriverName), Client: client, Registry: registry,
		Health: a.inventory, Rules: c.rules(), Records: records, BootID: boot,
	})
	gate, err := a.newGPUNodeController(c, client.gpuNodes, boot, records)
	if err != nil {
		return nil, err
	}
	a.preparer, err = prepare.New(seam(prepare.Config{
		Inventory: a.inventory, Instances: a.hardware, Modes: a.hardware, Processes: a.hardware, Monitoring: a.monitoring, Passthrough: c.passthrough(a.inventory), TimeSlice: smi.New(c.nvidiaSMI), Daemons: a.daemons, Shares: options.Offer.Shares,
		Records: records, Specs: a.specs, Claims: reader, Gate: gate,
		BootID: boot, LocksDir: filepath.Join(c.data(), locksFolder), Observer: server.NewSteps(registry).Observe, Reconciled: a.status.Reconciled, Blocked: metrics.Blocked,
	}))
	if err != nil {
		return nil, err
	}
	a.limiter = a.newLimiter(c, records)
	a.publisher = publish.New(publish.Config{Node: c.node, Client: client, Inventory: a.inventory, Options: options, Accepted: timePublishing(registry)})
	a.server = server.New(server.Config{
		Driver: c.DriverName, Node: c.node, PodUID: c.podUID, PluginDir: c.data(), RegistryDir: c.registry,
		Client: client, Claims: a.preparer, Translate: reader.Read, Status: a.status, Metrics: metrics, Health: a.inventory, Rules: c.rules(),
		MetadataDir: c.metadata(),
	})
	a.endpoint = endpoint{address: c.address, profiles: c.profiles, socket: c.socket, client: client, metrics: registry, ready: a.ready, live: a.liveness.Check, resize: a.resize}
	registerMetrics(ctx, registry, a, records, options)
	registry.MustRegister(exporter.New(ctx, exporter.Config{
		Node: c.node, Hardware: a.hardware, Inventory: a.inventory, Records: records,
		Pods: exporter.Kubelet{Socket: c.podResources, Driver: c.DriverName}, Leads: a.instance.Leads, Limits: a.usages(),
	}))
	return a, nil
}

// publishOptions returns what the node publishes, with at least the memory that claims already have.
func publishOptions(c config, records *checkpoint.Store) (wire.Options, error) {
	options, err := publish.Options(c.NodeConfigSpec)
	if err != nil {
		return wire.Options{}, err
	}
	claims, err := records.List()
	options.Allocated = prepare.SharedMemory(claims)
	return options, err
}

// newLimiter returns the server that limits the GPU memory of containers; nil on a node for virtual machines.
func (a *agent) newLimiter(c config, records *checkpoint.Store) *limiter.Server {
	driver, limits := a.hardware.(limiter.Driver)
	if !limits {
		return nil
	}
	return limiter.New(limiter.Config{
		Sockets: c.limits(), Name: cmp.Or(c.podUID, withoutPod), Hierarchy: c.cgroups(), Containers: filepath.Join(c.limits(), containersFolder),
		Records: records, Claims: a.preparer, Inventory: a.inventory, Driver: driver, Failed: a.status.MemoryLimitFailed, Resized: a.status.MemoryLimitChanged,
	})
}

// usages returns the source of metrics of limited containers; nil on a node for virtual machines.
func (a *agent) usages() exporter.Limits {
	if a.limiter == nil {
		return nil
	}
	return a.limiter
}

// resize changes the memory limit of a claim.
func (a *agent) resize(ctx context.Context, r limiter.Resize) (limiter.Resized, error) {
	if a.limiter == nil {
		return limiter.Resized{}, errors.New("the GPUs of this node are for virtual machines: their memory is not limited")
	}
	return a.limiter.Resize(ctx, r)
}

// limitMemory serves the hooks of containers whose GPU memory is limited.
func (a *agent) limitMemory(ctx context.Context) error {
	if a.limiter == nil {
		return nil
	}
	return a.limiter.Run(ctx)
}

// lead runs the tasks of the leading agent while no newer agent runs: it writes the common CDI spec, and publishes the
// ResourceSlices, the status of claims and the GPUNode's status.
func (a *agent) lead(ctx context.Context) error {
	return a.instance.Lead(ctx, func(ctx context.Context) error {
		a.refresh(ctx)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return a.publisher.Run(ctx) })
		group.Go(func() error { return a.status.Follow(ctx) })
		if a.gpuNode != nil {
			group.Go(func() error { return a.gpuNode.Run(ctx) })
		}
		return group.Wait()
	})
}

// reconcilePeriod is the interval of reconciliations without another reason. Each retries what an earlier one could not
// destroy.
const reconcilePeriod = time.Minute

// upkeep reconciles the claims at the start, periodically, on request (requestReconcile) and after a change of the driver
// version, and then writes the common CDI spec again.
func (a *agent) upkeep(ctx context.Context) error {
	tick := time.NewTicker(reconcilePeriod)
	defer tick.Stop()
	node, _, outdated := a.inventory.Watch()
	driver := node.DriverVersion
	for {
		a.reconcile(ctx)
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				changed = true
			case <-a.reconcileNow:
				changed = true
			case <-outdated:
				node, _, outdated = a.inventory.Watch()
				changed = driver != node.DriverVersion
				driver = node.DriverVersion
			}
		}
		a.refresh(ctx)
	}
}

// reconcile reconciles the claims. It is bounded by the period; errors are logged.
func (a *agent) reconcile(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, reconcilePeriod)
	defer cancel()
	if err := a.preparer.Reconcile(limited); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Reconciliation of the claims failed, retrying", "after", reconcilePeriod)
	}
}

// refresh writes the common CDI spec again. Without a driver there is no content for it.
func (a *agent) refresh(ctx context.Context) {
	if err := a.specs.Refresh(); err != nil && !errors.Is(err, gpu.ErrNoDriver) {
		klog.FromContext(ctx).Error(err, "The common CDI spec is not up to date")
	}
}

// ready returns why the agent is not ready: it is not registered with kubelet, or its ResourceSlices are not accepted yet.
func (a *agent) ready(ctx context.Context) error {
	if !a.server.Registered() {
		return errors.New("kubelet has not registered the plugin yet")
	}
	return a.publisher.Accepted(ctx)
}

func (a *agent) close(ctx context.Context) {
	a.hardware.Close()
	if err := a.instance.Close(); err != nil {
		klog.FromContext(ctx).Error(err, "The agent could not remove its instance file")
	}
}

// logUnreadable returns the function that logs records that could not be read.
func logUnreadable(ctx context.Context) func(path string, err error) {
	return func(path string, err error) {
		klog.FromContext(ctx).Error(err, "Unreadable record was moved aside", "file", path)
	}
}
