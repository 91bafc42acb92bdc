package gpus

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	cmd := &cobra.Command{
		Use:   "gpus [node...]",
		Short: "Show each node's GPUs: their use, their pods and their free capacity",
		Long: `Show each node's GPUs: their use, their pods and their free capacity.

A partitioned GPU is drawn by memory slice: |1g.10gb| is a MIG device with its pod below, |....| is free,
|xxxx| is withheld because of a MIG device that Tessera did not create, |!!!!| is free but unavailable because of
a fault. A shared GPU is drawn by the memory that its pods request.

The data comes from ResourceSlices, ResourceClaims, pods and, with permission to list them, GPUNodes.`,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, request{nodes: nodes, answer: answer, now: time.Now(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()})
		},
	}
	answer.Add(cmd, output.Text, output.Wide, output.JSON, output.YAML)
	return cmd
}

// request is one call of the verb.
type request struct {
	nodes  []string
	answer output.Flags
	now    time.Time
	// out receives the list, errOut messages about it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	screen, err := output.NewScreen(r.out, r.answer.Color)
	if err != nil {
		return err
	}
	list, err := Load(ctx, c)
	if err != nil {
		return err
	}
	if err := list.keepNodes(r.nodes); err != nil {
		return err
	}
	if written, err := r.answer.Write(r.out, list); written {
		return err
	}
	if len(list.Items) == 0 && len(list.Problems) == 0 {
		_, err := fmt.Fprintf(r.errOut, "No GPUs are published by %s.\nCheck the agents: kubectl -n %s get pods -o wide\n", strings.Join(c.Drivers, " or "), cluster.SystemNamespace)
		return err
	}
	detail := Brief
	if r.answer.Format == output.Wide {
		detail = Full
	}
	Draw(screen, list, detail, r.now)
	return screen.Err()
}

// Load lists the objects and returns the GPUs. It fails when ResourceSlices or ResourceClaims cannot be listed; without pods, their phases are missing.
func Load(ctx context.Context, c *cluster.Cluster) (List, error) {
	var s cluster.State
	var err error
	if s.Slices, err = c.ListResourceSlices(ctx); err != nil {
		return List{}, err
	}
	if s.Claims, err = c.ListClaims(ctx, ""); err != nil {
		return List{}, err
	}
	var problems []string
	if s.Pods, err = c.ListPods(ctx, ""); err != nil {
		problems = append(problems, "Pod phases are missing: "+err.Error())
	}
	// Most users may not list GPUNodes. Taints have the same faults with a less exact severity, so this is no problem to report.
	s.GPUNodes, err = c.ListGPUNodes(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		problems = append(problems, "Fault reports of the agents are missing: "+err.Error())
	}
	list := Build(s)
	list.Problems = append(list.Problems, problems...)
	return list, nil
}

// keepNodes removes the GPUs of all nodes but the named ones; without names it keeps all.
func (l *List) keepNodes(nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	var known []string
	for _, g := range l.Items {
		known = append(known, g.Node)
	}
	known = slices.Compact(known)
	for _, node := range nodes {
		if !slices.Contains(known, node) {
			return fmt.Errorf("node %q publishes no GPUs; nodes with GPUs: %s", node, strings.Join(known, ", "))
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(g GPU) bool { return !slices.Contains(nodes, g.Node) })
	return nil
}
