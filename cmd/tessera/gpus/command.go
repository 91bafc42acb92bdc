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
	"github.com/tessera-gpu/tessera/cmd/tessera/listing"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var selector string
	var usage bool
	cmd := &cobra.Command{
		Use:   "gpus [NODE|NODE/GPU...]",
		Short: "Show each node's GPUs: their use, their pods and their free capacity",
		Long: `Show each node's GPUs: their use, their pods and their free capacity.

A partitioned GPU is drawn by memory slice: |1g.10gb| is a MIG device with its pod below, |....| is free,
|xxxx| is withheld because of a MIG device that Tessera did not create, |!!!!| is free but unavailable because of
a fault. A shared GPU is drawn by the memory that its pods request.

The data comes from ResourceSlices, ResourceClaims, pods and, with permission to list them, GPUNodes. With --usage,
the agents are queried for the memory that containers with limited shares have allocated; this requires permission
for pods/exec in Tessera's namespace.

With --watch, GPUs whose use, faults or attributes have changed are drawn again, below a line about their node.`,
		Example:           "  tessera gpus\n  tessera gpus gpu-a --watch\n  tessera gpus gpu-a -o wide\n  tessera gpus -l zone=a -o custom-columns=NODE:.node,GPU:.index,SHAPE:.shape",
		ValidArgsFunction: flags.Complete(complete),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := cluster.Validate(&answer, selector); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, request{names: names, selector: selector, usage: usage, answer: answer, now: time.Now, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()})
		},
	}
	cluster.AddSelector(cmd, &selector, "nodes")
	cmd.Flags().BoolVar(&usage, "usage", false, "show the memory that containers with limited shares have allocated")
	answer.Add(cmd, output.Wide, output.Name)
	answer.AddWatch(cmd)
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
	// usage adds the containers whose memory is limited; runner reads them from the agents, by default that of the cluster.
	usage  bool
	runner cluster.Runner
	answer output.Flags
	now    func() time.Time
	// out receives the list, errOut messages about it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	return listing.Verb{Load: r.load, Answer: r.answer, Out: r.out, ErrOut: r.errOut}.Run(ctx, c)
}

// load returns the selected GPUs.
func (r request) load(ctx context.Context, c *cluster.Cluster) (output.Result, error) {
	list, err := Load(ctx, c)
	if err != nil {
		return output.Result{}, err
	}
	selected, err := c.NodeFilter(ctx, r.selector)
	if err != nil {
		return output.Result{}, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(g GPU) bool { return !selected(g.Node) })
	result := output.Result{Missing: list.keepNamed(r.names), Rows: []output.Row{}, Problems: list.Problems, DrawsProblems: true}
	if r.usage {
		if err := r.addUsage(ctx, c, &list); err != nil {
			return output.Result{}, err
		}
		result.Problems = list.Problems
	}
	for _, g := range list.Items {
		result.Rows = append(result.Rows, output.Row{Name: g.Node + "/" + g.Name, Title: "GPU " + g.Node + "/" + g.Name + " of " + g.Driver, Value: g})
	}
	result.Value = list
	result.DrawRows = func(s *output.Screen, shown func(int) bool) { drawGPUs(s, list.Items, shown, r.now()) }
	if r.answer.IsText() && len(list.Items) == 0 && len(list.Problems) == 0 {
		result.Empty, err = r.explainEmpty(ctx, c)
	}
	return result, err
}

// explainEmpty returns why the list may be empty.
func (r request) explainEmpty(ctx context.Context, c *cluster.Cluster) (string, error) {
	if r.selector != "" {
		return fmt.Sprintf("No node with the labels %s publishes GPUs.", r.selector), nil
	}
	namespace, err := c.SystemNamespace(ctx)
	return fmt.Sprintf("No GPUs are published by %s.\nCheck the agents: kubectl -n %s get pods -o wide", strings.Join(c.Drivers, " or "), namespace), err
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
// The error is about a name without a GPU.
func (l *List) keepNamed(names []string) error {
	if len(names) == 0 {
		return nil
	}
	all := l.Items
	l.Items = slices.DeleteFunc(slices.Clone(all), func(g GPU) bool { return !slices.ContainsFunc(names, g.isNamed) })
	var nodes []string
	for _, g := range all {
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
	return nil
}

// isNamed reports whether the argument of the verb selects the GPU.
func (g GPU) isNamed(name string) bool {
	node, which, isGPU := strings.Cut(name, "/")
	return node == g.Node && (!isGPU || which == g.Name || which == g.UUID && which != "" || which == strconv.Itoa(g.Index))
}
