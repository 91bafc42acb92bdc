package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/capability"
)

// cleaner removes the objects of the installer in the order of their dependencies: users of GPUs before the agents that prepare claims, and agents before
// the drivers.
type cleaner struct {
	action.Cluster
	out printer
	// drain defines whether user pods that use GPUs are evicted or fail the removal.
	drain drainMode
	// pause is the polling interval.
	pause time.Duration
	// named are the skipped nodes that were already reported.
	named map[string]bool
}

// drainMode defines how user pods that use GPUs are handled.
type drainMode string

const (
	refuseUsers drainMode = "refuse"
	evictUsers  drainMode = "evict"
)

// errInUse is returned if user pods use GPUs and eviction is not allowed.
var errInUse = errors.New("GPUs are in use: delete these pods, or allow their eviction with --drain (in the chart: cleanup.drain)")

// cleanupCommand removes the operands before the chart removes the rest.
func cleanupCommand(o *options) *cobra.Command {
	drain, timeout := false, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove all objects of the installer, in order; fails while user pods use GPUs, unless --drain is set",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, errors.New("the time limit --timeout was exceeded"))
			defer cancel()
			c, err := o.cleaner(cmd)
			if err != nil {
				return err
			}
			if drain {
				c.drain = evictUsers
			}
			return c.run(ctx)
		},
	}
	cmd.Flags().BoolVar(&drain, "drain", false, "evict user pods that use GPUs, with the eviction API")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "time limit of the removal")
	return cmd
}

func (o *options) cleaner(out printer) (*cleaner, error) {
	access, err := o.access()
	if err != nil {
		return nil, err
	}
	server, err := capability.Read(access)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	cluster := action.Cluster{Client: c, Live: c, Namespace: o.namespace, SliceTaints: !server.TaintRules}
	return &cleaner{Cluster: cluster, out: out, drain: refuseUsers, pause: time.Second, named: map[string]bool{}}, nil
}

// step is one step of the removal.
type step struct {
	name string
	do   func(context.Context) error
}

// run performs the removal. If it fails before the agents are removed, the GPUs return to service. It may be repeated after any error and
// continues where it ended.
func (c *cleaner) run(ctx context.Context) error {
	held, err := c.held(ctx)
	if err != nil {
		return err
	}
	if len(held) > 0 && c.drain == refuseUsers {
		return c.inUse(held)
	}
	err = c.perform(ctx, []step{
		{"stop the installer", c.stopInstaller},
		{"stop assigning new pods to tessera-scheduler", c.removeAssignment},
		{"take the GPUs out of service", c.close},
		{"remove monitors and validations", c.removeMonitors},
		{"wait until no claim is prepared", c.release},
	})
	if err != nil {
		return errors.Join(err, c.undo(ctx))
	}
	return c.perform(ctx, []step{
		{"remove node agents and vGPU device managers", func(ctx context.Context) error {
			return c.removeSets(ctx, render.OperandNodeAgent, render.OperandVGPUDeviceManager)
		}},
		{"remove drivers", func(ctx context.Context) error {
			return c.removeSets(ctx, render.OperandDriver, render.OperandVGPUManager, render.OperandToolkit, render.OperandDiscovery)
		}},
		{"remove labels of nodes", c.removeLabels},
		{"remove taints of GPUs and GPUNodes", c.removeNodes},
		{"remove everything else", c.removeRest},
	})
}

// perform performs steps in order until one fails; the error names the step.
func (c *cleaner) perform(ctx context.Context, steps []step) error {
	for _, s := range steps {
		c.out.Printf("%s\n", s.name)
		if err := s.do(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = errors.Join(err, cause)
			}
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// inUse prints the user pods that use GPUs and returns errInUse.
func (c *cleaner) inUse(held []holder) error {
	for _, h := range held {
		c.out.Printf("pod %s/%s uses claim %s\n", h.Namespace, h.Name, h.claim)
	}
	return fmt.Errorf("%d pods: %w", len(held), errInUse)
}

// holder is a user pod that uses GPUs, with one of its claims.
type holder struct {
	action.PodRef
	claim string
}

// held returns the user pods that use devices of our drivers, sorted and without duplicates. Consumers of a claim that no longer exist are excluded.
func (c *cleaner) held(ctx context.Context) ([]holder, error) {
	drivers, err := c.drivers(ctx)
	if err != nil {
		return nil, err
	}
	claims := &resourceapi.ResourceClaimList{}
	if err := c.Client.List(ctx, claims); err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	var list []holder
	for _, claim := range claims.Items {
		if claim.Namespace == c.Namespace || !allocated(claim, drivers) {
			continue
		}
		for _, consumer := range claim.Status.ReservedFor {
			h := holder{action.PodRef{Namespace: claim.Namespace, Name: consumer.Name, UID: consumer.UID}, claim.Name}
			if slices.ContainsFunc(list, func(o holder) bool { return o.PodRef == h.PodRef }) {
				continue
			}
			if consumer.APIGroup == "" && consumer.Resource == "pods" {
				if user, err := action.ReadConsumer(ctx, c.Live, types.NamespacedName{Namespace: claim.Namespace, Name: consumer.Name}, consumer.UID); err != nil {
					return nil, err
				} else if user == nil {
					continue
				}
			}
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b holder) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return list, nil
}

// allocated reports whether a claim has devices of the drivers.
func allocated(claim resourceapi.ResourceClaim, drivers []string) bool {
	return claim.Status.Allocation != nil &&
		slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return slices.Contains(drivers, r.Driver)
		})
}

// drivers returns the names of the DRA drivers of present and former agents.
func (c *cleaner) drivers(ctx context.Context) ([]string, error) {
	names := []string{v1alpha1.DriverName}
	policies := &v1alpha1.ClusterPolicyList{}
	if err := c.Client.List(ctx, policies); err != nil {
		return nil, fmt.Errorf("list ClusterPolicies: %w", err)
	}
	for _, policy := range policies.Items {
		agent := policy.Spec.NodeAgent
		configs := []*v1alpha1.NodeConfigSpec{agent.Config}
		for _, pool := range agent.Pools {
			configs = append(configs, pool.Config)
		}
		for _, config := range configs {
			if config != nil && config.DriverName != "" && !slices.Contains(names, config.DriverName) {
				names = append(names, config.DriverName)
			}
		}
	}
	return names, nil
}
