// Package status implements the verb status: whether Tessera is ready, its components, the conditions of the ClusterPolicy and the nodes by phase.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether Tessera is ready: components, conditions and nodes by phase",
		Long: `Show whether Tessera is ready: its Deployments and DaemonSets, the conditions of the ClusterPolicy, and the GPU nodes
by phase with the reasons of those that are not Ready. Tessera is ready when the ClusterPolicy is Ready for its
latest edit and every component runs.

With --wait, wait until it is ready; the standard error has a line for each change. With --watch, the whole report
is printed again after each change. For faults of GPUs, run "tessera doctor".

Exit status: 0 when Tessera is ready or --watch is interrupted, otherwise 1.`,
		Example: "  tessera status\n  tessera status --watch\n  tessera status --wait --timeout 30m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.answer.Validate(); err != nil {
				return err
			}
			if r.wait && r.answer.Watch {
				return errors.New("--wait and --watch exclude each other: --wait ends when Tessera is ready, --watch when it is interrupted")
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			r.out, r.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context(), c)
		},
	}
	cmd.Flags().BoolVar(&r.wait, "wait", false, "wait until Tessera is ready")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 10*time.Minute, "time to wait")
	r.answer.Add(cmd, output.Wide)
	r.answer.AddWatch(cmd)
	return cmd
}

// request is one call of the verb.
type request struct {
	wait    bool
	timeout time.Duration
	answer  output.Flags
	// out receives the report, errOut the progress.
	out, errOut io.Writer
}

// interval is the time between two reports while waiting.
const interval = 2 * time.Second

func (r *request) run(ctx context.Context, c *cluster.Cluster) error {
	if r.answer.Watch {
		return listing.Verb{Load: loadResult, Answer: r.answer, Out: r.out, ErrOut: r.errOut}.Run(ctx, c)
	}
	report, err := load(ctx, c)
	if r.wait {
		report, err = r.waitReady(ctx, c, report, err)
	}
	if err != nil {
		return err
	}
	if err := r.answer.Print(r.out, report.result()); err != nil {
		return err
	}
	switch {
	case report.Ready:
		return nil
	case r.wait:
		return fmt.Errorf("Tessera is not ready after %s", r.timeout) //nolint:revive,staticcheck // a name
	}
	return errors.New("Tessera is not ready: see above") //nolint:revive,staticcheck // a name
}

// waitReady loads the report until it is ready or the time is over, and writes each new reason. It returns the last report. A request that fails is
// repeated.
func (r *request) waitReady(ctx context.Context, c *cluster.Cluster, report Report, err error) (Report, error) {
	deadline := time.NewTimer(r.timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := ""
	for err != nil || !report.Ready {
		reason := report.Reason
		if err != nil {
			reason = err.Error()
		}
		if reason != last {
			if _, err := fmt.Fprintln(r.errOut, reason); err != nil {
				return report, err
			}
			last = reason
		}
		select {
		case <-ctx.Done():
			return report, context.Cause(ctx)
		case <-deadline.C:
			return report, err
		case <-ticker.C:
		}
		report, err = load(ctx, c)
	}
	return report, nil
}

// loadResult returns the report as the output of the verb.
func loadResult(ctx context.Context, c *cluster.Cluster) (output.Result, error) {
	report, err := load(ctx, c)
	return report.result(), err
}

// result returns the report as the output of the verb.
func (r Report) result() output.Result {
	return output.Result{Value: r, Draw: func(s *output.Screen) { draw(s, r) }}
}

// load lists the objects and returns the report.
func load(ctx context.Context, c *cluster.Cluster) (Report, error) {
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return Report{}, err
	}
	var s state
	policies, err := c.ListPolicies(ctx)
	if err != nil {
		return Report{}, err
	}
	for i := range policies {
		if policies[i].Name == v1alpha1.ClusterPolicyName {
			s.policy = &policies[i]
		}
	}
	if s.nodes, err = c.ListGPUNodes(ctx); err != nil {
		return Report{}, err
	}
	if s.deployments, err = c.ListDeployments(ctx, namespace); err != nil {
		return Report{}, err
	}
	if s.daemonSets, err = c.ListDaemonSets(ctx, namespace); err != nil {
		return Report{}, err
	}
	return build(s), nil
}

// maxNodes is the number of nodes of a phase that the narrow table names.
const maxNodes = 3

// draw writes the report for people.
func draw(s *output.Screen, r Report) {
	style, verdict := output.Green, "Ready: "
	if !r.Ready {
		style, verdict = output.Red, "Not ready: "
	}
	s.Wrap(output.Part{Style: style, Text: verdict}, 0, output.Part{Style: style, Text: r.Reason})
	var components, conditions, nodes [][]string
	for _, c := range r.Components {
		components = append(components, []string{c.Name, c.Kind, fmt.Sprintf("%d/%d", c.Ready, c.Pods)})
	}
	for _, c := range r.Conditions {
		conditions = append(conditions, []string{c.Type, string(c.Status), c.Reason, c.Message})
	}
	for _, p := range r.Phases {
		names := strings.Join(p.Nodes[:min(len(p.Nodes), maxNodes)], ",")
		if more := len(p.Nodes) - maxNodes; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		if s.Wide {
			names = strings.Join(p.Nodes, ",")
		}
		nodes = append(nodes, []string{string(p.Phase), strconv.Itoa(p.Count), p.Reason, names, p.Message})
	}
	for _, table := range []struct {
		columns []output.Column
		rows    [][]string
	}{
		{output.Columns("COMPONENT", "KIND", "READY"), components},
		{output.Columns("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions},
		{output.Columns("PHASE", "COUNT", "REASON", "NODES", "MESSAGE"), nodes},
	} {
		if len(table.rows) > 0 {
			s.Line()
			s.Table(table.columns, table.rows)
		}
	}
}
