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
		Short: "Draw every node's GPUs: what they are used as, by which pods, and what is free",
		Long: `Draw every node's GPUs: what each is used as now, by which pods, and what is free.

A partitioned GPU is drawn slice by slice: |1g.10gb| is an instance with its pod below, |....| is free,
|xxxx| is withheld, because something lives there that Tessera did not make, |!!!!| is free and not given to
claims, because it is not well. A shared GPU is drawn by the memory that its pods asked for. The picture comes
from ResourceSlices, ResourceClaims, pods and, where you may read them, GPUNodes.`,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, request{nodes: nodes, answer: answer, now: time.Now(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()})
		},
	}
	answer.Add(cmd, output.Text, output.Wide, output.JSON, output.YAML)
	return cmd
}

// request is what a user wants to see.
type request struct {
	nodes  []string
	answer output.Flags
	now    time.Time
	// out takes the answer, errOut what is no part of it.
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
	if err := list.keep(r.nodes); err != nil {
		return err
	}
	if written, err := r.answer.Write(r.out, list); written {
		return err
	}
	if len(list.Items) == 0 && len(list.Problems) == 0 {
		_, err := fmt.Fprintf(r.errOut, "No GPUs are published by %s.\nLook at the agents: kubectl -n %s get pods -o wide\n", strings.Join(c.Drivers, " or "), cluster.SystemNamespace)
		return err
	}
	detail := Brief
	if r.answer.Format == output.Wide {
		detail = Full
	}
	Draw(screen, list, detail, r.now)
	return screen.Err()
}

// Load asks the cluster. Without the right to see pods, their phases are missing.
func Load(ctx context.Context, c *cluster.Cluster) (List, error) {
	var s cluster.State
	var err error
	if s.Slices, err = c.ListSlices(ctx); err != nil {
		return List{}, err
	}
	if s.Claims, err = c.ListClaims(ctx, ""); err != nil {
		return List{}, err
	}
	var problems []string
	if s.Pods, err = c.ListPods(ctx, ""); err != nil {
		problems = append(problems, "The phases of pods are missing: "+err.Error())
	}
	// Taints tell the same, less exactly: who may not read GPUNodes, as most users, misses nothing that needs a word.
	s.GPUNodes, err = c.ListGPUNodes(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		problems = append(problems, "What the agents say of health is missing: "+err.Error())
	}
	list := Build(s)
	list.Problems = append(list.Problems, problems...)
	return list, nil
}

// keep leaves out every node that is not named; all stay when none is.
func (l *List) keep(nodes []string) error {
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
			return fmt.Errorf("node %q publishes no GPUs; these do: %s", node, strings.Join(known, ", "))
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(g GPU) bool { return !slices.Contains(nodes, g.Node) })
	return nil
}
