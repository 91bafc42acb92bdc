package gpus

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
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
	var selector string
	cmd := &cobra.Command{
		Use:   "gpus [NODE|NODE/GPU...]",
		Short: "Show each node's GPUs: their use, their pods and their free capacity",
		Long: `Show each node's GPUs: their use, their pods and their free capacity.

A partitioned GPU is drawn by memory slice: |1g.10gb| is a MIG device with its pod below, |....| is free,
|xxxx| is withheld because of a MIG device that Tessera did not create, |!!!!| is free but unavailable because of
a fault. A shared GPU is drawn by the memory that its pods request.

The data comes from ResourceSlices, ResourceClaims, pods and, with permission to list them, GPUNodes.`,
		Example:           "  tessera gpus\n  tessera gpus gpu-a -o wide\n  tessera gpus -l zone=a -o custom-columns=NODE:.node,GPU:.index,SHAPE:.shape",
		ValidArgsFunction: flags.Complete(complete),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := cluster.Validate(&answer, selector); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, request{names: names, selector: selector, answer: answer, now: time.Now(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()})
		},
	}
	cluster.AddSelector(cmd, &selector, "nodes")
	answer.Add(cmd, output.Wide, output.Name)
	return cmd
}

// complete is a cluster.Completer with the nodes and, after NODE/, with their GPUs.
func complete(ctx context.Context, c *cluster.Cluster, begin string) ([]string, error) {
	if !strings.Contains(begin, "/") {
		return cluster.NodeNames(ctx, c, begin)
	}
	slices, err := c.ListResourceSlices(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range (cluster.State{Slices: slices}).Readings() {
		for _, g := range r.GPUs {
			names = append(names, r.Node+"/"+g.Name)
		}
	}
	return names, nil
}

// request is one call of the verb.
type request struct {
	// names are nodes, or GPUs in the form NODE/GPU; selector is a label selector of nodes. Empty, they select all GPUs.
	names    []string
	selector string
	answer   output.Flags
	now      time.Time
	// out receives the list, errOut messages about it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	list, err := Load(ctx, c)
	if err != nil {
		return err
	}
	selected, err := c.NodeFilter(ctx, r.selector)
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(g GPU) bool { return !selected(g.Node) })
	if err := list.keepNamed(r.names); err != nil {
		return err
	}
	if r.answer.IsText() && len(list.Items) == 0 && len(list.Problems) == 0 {
		return r.explainEmpty(ctx, c)
	}
	result := output.Result{Value: list, Draw: func(s *output.Screen) { Draw(s, list, r.now) }}
	for _, g := range list.Items {
		result.Rows = append(result.Rows, output.Row{Name: g.Node + "/" + g.Name, Value: g})
	}
	return r.answer.Print(r.out, result)
}

// explainEmpty writes why the list may be empty.
func (r request) explainEmpty(ctx context.Context, c *cluster.Cluster) error {
	if r.selector != "" {
		_, err := fmt.Fprintf(r.errOut, "No node with the labels %s publishes GPUs.\n", r.selector)
		return err
	}
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(r.errOut, "No GPUs are published by %s.\nCheck the agents: kubectl -n %s get pods -o wide\n", strings.Join(c.Drivers, " or "), namespace)
	return err
}

// Load lists the objects and returns the GPUs. It fails when ResourceSlices or ResourceClaims cannot be listed; without pods, their phases are missing.
func Load(ctx context.Context, c *cluster.Cluster) (List, error) {
	var s cluster.State
	var err error
	if s.Slices, err = c.ListResourceSlices(ctx); err != nil {
		return List{}, err
	}
	if s.Claims, err = c.ListClaims(ctx, "", ""); err != nil {
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

// keepNamed removes all GPUs but those of the named nodes and those named NODE/GPU, where GPU is a name, an index or a UUID; without names it keeps all.
func (l *List) keepNamed(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var nodes []string
	for _, g := range l.Items {
		nodes = append(nodes, g.Node)
	}
	nodes = slices.Compact(nodes)
	for _, name := range names {
		node, _, isGPU := strings.Cut(name, "/")
		switch {
		case !slices.Contains(nodes, node):
			return fmt.Errorf("node %q publishes no GPUs; nodes with GPUs: %s", node, strings.Join(nodes, ", "))
		case isGPU && !slices.ContainsFunc(l.Items, func(g GPU) bool { return g.isNamed(name) }):
			return fmt.Errorf("node %q publishes no such GPU: %q; \"tessera gpus %s -o name\" lists the names", node, name, node)
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(g GPU) bool { return !slices.ContainsFunc(names, g.isNamed) })
	return nil
}

// isNamed reports whether the argument of the verb selects the GPU.
func (g GPU) isNamed(name string) bool {
	node, which, isGPU := strings.Cut(name, "/")
	return node == g.Node && (!isGPU || which == g.Name || which == g.UUID && which != "" || which == strconv.Itoa(g.Index))
}
