package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/disk"
	"github.com/tessera-gpu/tessera/e2e/env/lab/host"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// Lab is a running cluster. Its methods may be called concurrently, but only one at a time for each node.
type Lab struct {
	folder   string
	state    state
	hardware Hardware
	progress io.Writer
	config   *rest.Config
	client   kubernetes.Interface
}

// Start builds missing programs and starts a lab. It returns when every node is Ready and pods can be created. It
// requires root. After an error the processes that were started keep running, so that their logs can be read: Down
// removes them.
func Start(ctx context.Context, config Config) (*Lab, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	needs := host.Needs()
	if config.virtual() {
		needs = append(needs, host.VirtualNeeds()...)
	}
	if err := host.Check(config.Folder, config.Cache, needs); err != nil {
		return nil, err
	}
	began := time.Now()
	plan, err := prepare(ctx, config)
	if err != nil {
		return nil, err
	}
	l := plan.lab
	if err := l.startControlPlane(ctx, plan); err != nil {
		return nil, fmt.Errorf("start the control plane: %w; logs are below %s", err, l.folder)
	}
	l.say("control plane is ready after %s", since(began))
	if err := l.startNodes(ctx, plan); err != nil {
		return nil, fmt.Errorf("%w; logs are below %s", err, l.folder)
	}
	if err := l.awaitAccount(ctx); err != nil {
		return nil, fmt.Errorf("%w; logs are below %s", err, l.folder)
	}
	l.say("%d nodes are ready after %s", len(config.Nodes), since(began))
	return l, nil
}

// Open returns the lab in a folder. hardware may be nil if no node with GPUs will be booted.
func Open(folder string, hardware Hardware) (*Lab, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, fmt.Errorf("find the lab's folder: %w", err)
	}
	s, err := load(folder)
	if err != nil {
		return nil, err
	}
	l := &Lab{folder: folder, state: s, hardware: hardware, progress: io.Discard}
	return l, l.connectClient()
}

// preparation has the results of prepare.
type preparation struct {
	lab         *Lab
	config      Config
	folders     binaries.Folders
	cluster     recipe.Cluster
	credentials credentials
	images      []string  // file names in the lab's image folder
	disk        disk.Disk // of the virtual machines, if there are any
}

// prepare reserves the folder, builds programs and images, creates the network and issues the first certificates.
func prepare(ctx context.Context, config Config) (*preparation, error) {
	s, err := newState(config.Nodes, config.kubernetes)
	if err != nil {
		return nil, err
	}
	s.Cache = config.Cache
	l := &Lab{folder: config.Folder, state: s, hardware: config.Hardware, progress: config.Progress}
	p := &preparation{lab: l, config: config}
	if p.folders, err = buildPrograms(ctx, config); err != nil {
		return nil, err
	}
	if config.virtual() {
		if p.disk, err = disk.Build(ctx, config.Cache, config.Progress); err != nil {
			return nil, err
		}
	}
	if err := l.state.claim(l.folder); err != nil {
		return nil, err
	}
	if err := l.buildOwn(ctx, p); err != nil {
		return nil, err
	}
	if err := l.controlPlane().Make(); err != nil {
		return nil, err
	}
	if err := l.layNetwork(ctx); err != nil {
		return nil, err
	}
	p.cluster = recipe.Cluster{
		Plan: l.state.Plan, Gates: config.Gates, RuntimeConfig: config.RuntimeConfig, StockScheduler: config.StockScheduler, Audit: config.Audit,
		PodControlGroups: config.kubernetes == binaries.Kubernetes136,
	}
	p.credentials, err = newCredentials(recipe.Server(l.state.Plan))
	return p, err
}

// startControlPlane boots the control plane and writes a kubeconfig for the user.
func (l *Lab) startControlPlane(ctx context.Context, p *preparation) error {
	plan := l.state.Plan
	files, err := p.credentials.controlPlane(plan.ControlPlane(), plan.FirstService())
	if err != nil {
		return err
	}
	spec := recipe.ControlPlane(p.cluster)
	scheduler, err := schedulerConfig()
	if err != nil {
		return err
	}
	spec.Files = append(append(spec.Files, files...), scheduler)
	spec.Mounts = binaryMounts(p.folders)
	kubeconfig, err := p.credentials.kubeconfig(admin())
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := l.controlPlane().Boot(ctx, l.guest(), spec); err != nil {
		return err
	}
	if err := l.saveSpec(spec); err != nil {
		return err
	}
	if err := l.connectClient(); err != nil {
		return err
	}
	if err := l.allow(ctx, p.cluster); err != nil {
		return err
	}
	return l.controlPlane().Wait(ctx)
}

// startNodes creates and boots all nodes in parallel.
func (l *Lab) startNodes(ctx context.Context, p *preparation) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, spec := range l.state.Nodes {
		group.Go(func() error {
			if err := l.makeNode(ctx, p, i); err != nil {
				return fmt.Errorf("make %s: %w", spec.Name, err)
			}
			return l.boot(ctx, i)
		})
	}
	return group.Wait()
}

// Folder returns the lab's folder.
func (l *Lab) Folder() string { return l.folder }

// ID returns the identifier that is part of every name that the lab uses on the host.
func (l *Lab) ID() string { return l.state.ID }

// Host returns the address at which the nodes reach the host.
func (l *Lab) Host() netip.Addr { return l.state.Plan.Host() }

// Kubernetes returns the minor version of the control plane, such as 1.37.
func (l *Lab) Kubernetes() string { return l.state.Kubernetes }

// RunsOwnScheduler reports whether a lab with this minor version of Kubernetes can run tessera-scheduler: a scheduler must not be newer than its API server.
func RunsOwnScheduler(kubernetes string) bool { return kubernetes == binaries.Kubernetes137 }

// Kubeconfig returns the path of a kubeconfig with all permissions.
func (l *Lab) Kubeconfig() string { return filepath.Join(l.folder, "kubeconfig") }

// Config returns a copy of the admin's client configuration, without a rate limit.
func (l *Lab) Config() *rest.Config { return rest.CopyConfig(l.config) }

// Down stops the lab and removes it. The lab cannot be used afterwards.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.folder) }

func (l *Lab) connectClient() error {
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	l.config, l.client = config, client
	return nil
}

func (l *Lab) machine(name string) machine.Machine { return l.state.machine(l.folder, name) }

// computer returns the machine of node i.
func (l *Lab) computer(i int) computer {
	if l.state.Nodes[i].Virtual {
		return l.virtual(i)
	}
	return l.machine(l.state.Nodes[i].Name)
}

func (l *Lab) virtual(i int) machine.Virtual {
	own := l.state.Plan.Node(i)
	return machine.Virtual{
		Machine: l.machine(l.state.Nodes[i].Name), Switch: l.controlPlane().Network(), Tap: bridgePort(i),
		Address: netip.PrefixFrom(own, l.state.Plan.Nodes().Bits()), Gateway: l.state.Plan.ControlPlane(), MAC: address.MAC(own).String(),
		Functions: l.state.Nodes[i].Functions,
	}
}

func (l *Lab) controlPlane() machine.Machine { return l.machine(recipe.ControlPlaneName) }

// guest returns the path of the program that is the first process of every machine.
func (l *Lab) guest() string { return filepath.Join(l.folder, "guest") }

// specFile returns the path of the file that stores the spec of a machine between boots.
func (l *Lab) specFile(name string) string {
	return filepath.Join(l.folder, "machines", name, "spec.json")
}

func (l *Lab) saveSpec(spec machine.Spec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the spec of %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(l.specFile(spec.Name), text, 0o600); err != nil { // it contains keys
		return fmt.Errorf("write the spec of %s: %w", spec.Name, err)
	}
	return nil
}

func (l *Lab) loadSpec(name string) (machine.Spec, error) {
	text, err := os.ReadFile(l.specFile(name))
	if err != nil {
		return machine.Spec{}, fmt.Errorf("read the spec of %s: %w", name, err)
	}
	var spec machine.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return machine.Spec{}, fmt.Errorf("read the spec of %s: %w", name, err)
	}
	return spec, nil
}

func (l *Lab) say(format string, args ...any) {
	fmt.Fprintf(l.progress, format+"\n", args...) //nolint:errcheck // progress is for the eye
}

func since(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
