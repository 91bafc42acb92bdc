package gpunode

import (
	"context"
	"sync"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/liveness"
	"github.com/tessera-gpu/tessera/kubelet-plugin/maintenance"
)

// Config is what a Controller needs. All fields are required.
type Config struct {
	// Node is the name of the Kubernetes node and of the GPUNode.
	Node   string
	Client Client
	// Maintenance applies spec.maintenance and spec.remediations. Only the Controller calls it.
	Maintenance *maintenance.Enforcer
	// Status returns the current status of the agent without Maintenance, Prepared and Remedies. It is called every second and must not
	// block on other systems.
	Status func(ctx context.Context) v1alpha1.AgentStatus
	// Known reports whether the hardware has been read, or no driver was found. Until then the faults in the GPUNode are kept.
	Known func() bool
	// Rounds are the rounds in which the spec is applied and the status is reported.
	Rounds *liveness.Work
}

// Controller applies the spec of the node's GPUNode and reports status.agent.
type Controller struct {
	config Config
	// changed receives a value when the GPUNode has changed.
	changed chan struct{}

	mu sync.Mutex
	// read is whether the API server has answered with the GPUNode, or that there is none; node is that answer.
	read bool
	node *v1alpha1.GPUNode
}

// New returns a controller that has not started.
func New(config Config) *Controller {
	return &Controller{config: config, changed: make(chan struct{}, 1)}
}

const (
	// syncPeriod is how often the status is compared with what was written.
	syncPeriod = time.Second
	// drainPeriod replaces syncPeriod while calls that were admitted before a maintenance are waited for.
	drainPeriod = 50 * time.Millisecond
)

// Run works until ctx ends; the agent calls it while it leads, and may call it again later. Errors of the API server, a missing GPUNode
// and a missing CRD are retried without limit: Run returns nil. It waits for a reset that has begun.
func (c *Controller) Run(ctx context.Context) error {
	c.mu.Lock()
	c.read, c.node = false, nil
	c.mu.Unlock()
	c.config.Maintenance.Start()
	var parts sync.WaitGroup
	parts.Go(func() { c.watchNode(ctx) })
	parts.Go(func() { c.sync(ctx) })
	parts.Wait()
	c.config.Maintenance.Wait()
	return nil
}

// sync applies the spec and reports the status, after each change and periodically.
func (c *Controller) sync(ctx context.Context) {
	r := reporter{Controller: c, logged: map[string]string{}}
	for {
		pause := r.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-c.config.Maintenance.Changed():
		case <-time.After(pause):
		}
	}
}

// round applies the spec and reports the status, and returns the pause before the next round.
func (r *reporter) round(ctx context.Context) time.Duration {
	defer r.config.Rounds.Begin()()
	node, read := r.latest()
	if !read {
		return syncPeriod
	}
	r.logError(ctx, "Maintenance not applied completely, retrying", r.config.Maintenance.Apply(ctx, node))
	if node != nil {
		r.report(ctx, node)
	}
	if r.config.Maintenance.Draining() {
		return drainPeriod
	}
	return syncPeriod
}
