package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// The exit statuses other than 0, which means that nothing is Critical or Fatal.
const (
	statusSevere     = 1
	statusIncomplete = 2
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var selector string
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Diagnose GPU nodes: faults, affected pods, remediation status, next steps",
		Long: `Diagnose every node with GPUs and list its findings, the most severe first: the fault and since when it exists,
the affected pods with the health in their status, the status of the installer's remediation, and the next step.

A node that is named is listed with its driver and kernel also if it is healthy.

Checked are GPU faults, withheld and tainted devices, agents, drivers, ResourceSlices, maintenance, pending
reboots, claims that were refused or whose device is gone, the scheduler and the installer. The command changes
nothing.

Requires permission to list resourceslices, resourceclaims, pods, nodes, devicetaintrules, leases in
Tessera's namespace and, where the installer runs, gpunodes and clusterpolicies. Without permission for one of these
other than resourceslices, the report names what was not checked.

Exit status: 0 when nothing is Critical or Fatal, 1 when something is, 2 when not everything could be checked.`,
		Example:           "  tessera doctor\n  tessera doctor gpu-a -o json",
		ValidArgsFunction: flags.Complete(cluster.NodeNames),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := cluster.Validate(&answer, selector); err != nil {
				return incomplete(err)
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return incomplete(err)
			}
			return run(cmd.Context(), c, request{nodes: nodes, selector: selector, answer: answer, now: time.Now(), out: cmd.OutOrStdout()})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return incomplete(err) })
	cluster.AddSelector(cmd, &selector, "nodes")
	answer.Add(cmd, output.Name)
	return cmd
}

// incomplete returns the error with the exit status of a diagnosis that could not be made in full.
func incomplete(err error) error { return output.Exit{Status: statusIncomplete, Err: err} }

// request is one call of the verb.
type request struct {
	// nodes are names, selector is a label selector of nodes. Empty, they select all nodes.
	nodes    []string
	selector string
	answer   output.Flags
	now      time.Time
	out      io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	report, err := Load(ctx, c, r.now)
	if err != nil {
		return incomplete(err)
	}
	selected, err := c.NodeFilter(ctx, r.selector)
	if err != nil {
		return incomplete(err)
	}
	report.Nodes = slices.DeleteFunc(report.Nodes, func(n Node) bool { return !selected(n.Name) })
	report.Summary = report.summarize()
	if err := report.keepNodes(r.nodes); err != nil {
		return incomplete(err)
	}
	result := output.Result{Value: report, Draw: func(s *output.Screen) { Draw(s, report) }}
	for _, n := range report.Nodes {
		result.Rows = append(result.Rows, output.Row{Name: "node/" + n.Name, Value: n})
	}
	switch err = r.answer.Print(r.out, result); {
	case err != nil:
		return incomplete(err)
	case report.Bad():
		return output.Exit{Status: statusSevere, Err: errors.New("there are Critical or Fatal findings: see above")}
	case len(report.Problems) > 0:
		return incomplete(errors.New("not everything could be checked: see above"))
	}
	return nil
}

// keepNodes removes all nodes but the named ones, which are drawn in any case; without names it keeps all. Cluster findings stay in any case.
func (r *Report) keepNodes(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var known []string
	for _, n := range r.Nodes {
		known = append(known, n.Name)
	}
	slices.Sort(known)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("node %q has no GPUs of Tessera; nodes with GPUs: %s", name, strings.Join(known, ", "))
		}
	}
	r.Named = true
	r.Nodes = slices.DeleteFunc(r.Nodes, func(n Node) bool { return !slices.Contains(names, n.Name) })
	r.Summary = r.summarize()
	return nil
}
