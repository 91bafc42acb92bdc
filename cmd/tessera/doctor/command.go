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

// The statuses with which the verb ends, besides 0: nothing is Critical or worse.
const (
	statusBad   = 1
	statusBlind = 2
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	cmd := &cobra.Command{
		Use:   "doctor [node...]",
		Short: "Say node by node what is wrong, which pods suffer, what is being done and what to do",
		Long: `Look at every node with GPUs, at what serves it and at who uses it, and say, the worst first: what is wrong,
since when, which pods suffer and what their status says, what the installer is doing about it, and what to do.

It looks at GPUs and their faults, devices that are withheld or tainted, agents, drivers and slices, nodes in
maintenance or waiting for a reboot, claims that are refused or have lost their device, scheduler and installer.
Whoever asks needs the right to list resourceslices, resourceclaims, pods, nodes, devicetaintrules, leases in
tessera-system and, where the installer is, gpunodes and clusterpolicies; without one of these, it says what it
could not look at. Nothing is changed by asking.

It ends with 0 when nothing is Critical or Fatal, with 1 when something is, and with 2 when it could not look.`,
		Example: "  tessera doctor\n  tessera doctor gpu-a -o json",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := answer.Validate(); err != nil {
				return blind(err)
			}
			c, err := flags.Connect()
			if err != nil {
				return blind(err)
			}
			return run(cmd.Context(), c, request{nodes: nodes, answer: answer, now: time.Now(), out: cmd.OutOrStdout()})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return blind(err) })
	answer.Add(cmd, output.Text, output.JSON, output.YAML)
	return cmd
}

// blind is an error of a doctor who could not look.
func blind(err error) error { return output.Exit{Status: statusBlind, Err: err} }

// request is what a user wants to see.
type request struct {
	nodes  []string
	answer output.Flags
	now    time.Time
	out    io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	screen, err := output.NewScreen(r.out, r.answer.Color)
	if err != nil {
		return blind(err)
	}
	report, err := Load(ctx, c, r.now)
	if err != nil {
		return blind(err)
	}
	if err := report.keep(r.nodes); err != nil {
		return blind(err)
	}
	written, err := r.answer.Write(r.out, report)
	if !written {
		Draw(screen, report)
		err = screen.Err()
	}
	switch {
	case err != nil:
		return blind(err)
	case report.Bad():
		return output.Exit{Status: statusBad, Err: errors.New("something is Critical or Fatal: see above")}
	case len(report.Problems) > 0:
		return blind(errors.New("not everything could be looked at: see above"))
	}
	return nil
}

// keep leaves out every node that is not named; all stay when none is. What belongs to no node stays.
func (r *Report) keep(nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	var known []string
	for _, n := range r.Nodes {
		known = append(known, n.Name)
	}
	slices.Sort(known)
	for _, node := range nodes {
		if !slices.Contains(known, node) {
			return fmt.Errorf("node %q has no GPUs that Tessera knows; these have: %s", node, strings.Join(known, ", "))
		}
	}
	r.Nodes = slices.DeleteFunc(r.Nodes, func(n Node) bool { return !slices.Contains(nodes, n.Name) })
	r.Summary = r.summarize()
	return nil
}
