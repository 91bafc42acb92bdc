// Package quota implements the verb quota: GPUs, MIG devices, shares and memory by namespace, with the limits of ResourceQuotas.
package quota

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	cmd := &cobra.Command{
		Use:   "quota [NAMESPACE...]",
		Short: "Show the GPUs, MIG devices, shares and memory that each namespace uses, and its limits",
		Long: `Show the whole GPUs, MIG devices, shares and memory that the allocated claims of each namespace have, and the limits
of its ResourceQuotas on devices and claims. Without an argument and without -n, all namespaces are shown.

ResourceQuotas count requested devices, also those of pending claims: used/limit can be more than what is
allocated. Monitors take no capacity and are not counted.

With --watch, namespaces whose use or limits have changed are listed again.`,
		Example:           "  tessera quota\n  tessera quota --watch\n  tessera quota vision -o json",
		ValidArgsFunction: flags.Complete(cluster.NamespaceNames),
		RunE: func(cmd *cobra.Command, namespaces []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			if *flags.Namespace != "" {
				namespaces = append(namespaces, *flags.Namespace)
			}
			return run(cmd.Context(), c, request{namespaces, answer, cmd.OutOrStdout(), cmd.ErrOrStderr()})
		},
	}
	answer.Add(cmd, output.Wide, output.Name)
	answer.AddWatch(cmd)
	return cmd
}

// request is one call of the verb.
type request struct {
	// namespaces are empty for all namespaces.
	namespaces []string
	answer     output.Flags
	// out receives the list, errOut messages about it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	return listing.Verb{Load: r.load, Answer: r.answer, Out: r.out, ErrOut: r.errOut}.Run(ctx, c)
}

// load returns the use of the selected namespaces.
func (r request) load(ctx context.Context, c *cluster.Cluster) (output.Result, error) {
	list, err := load(ctx, c, r.namespaces)
	if err != nil {
		return output.Result{}, err
	}
	result := output.Result{Value: list, Rows: []output.Row{}}
	for _, n := range list.Items {
		result.Rows = append(result.Rows, output.Row{Name: "namespace/" + n.Namespace, Title: "Namespace " + n.Namespace, Value: n})
	}
	result.DrawRows = func(s *output.Screen, shown func(int) bool) { draw(s, output.Select(list.Items, shown)) }
	if len(list.Items) == 0 {
		result.Empty = "No namespace uses GPUs or has limits on them."
	}
	return result, nil
}

// load lists the objects of the namespaces and returns their use.
func load(ctx context.Context, c *cluster.Cluster, namespaces []string) (List, error) {
	s := cluster.State{Drivers: c.Drivers}
	var err error
	if s.Slices, err = c.ListResourceSlices(ctx); err != nil {
		return List{}, err
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var list List
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
		if s.Claims, err = c.ListClaims(ctx, namespace, ""); err != nil {
			return List{}, err
		}
		quotas, err := c.ListQuotas(ctx, namespace)
		if err != nil {
			return List{}, err
		}
		one := build(gpus.Build(s).Items, quotas)
		one.Items = append(list.Items, one.Items...)
		list = one
	}
	return list, nil
}

// draw writes the namespaces as a table.
func draw(s *output.Screen, list []Namespace) {
	var rows [][]string
	for _, n := range list {
		var limits []string
		for _, l := range n.Limits {
			resource := l.Resource
			if !s.Wide {
				resource = strings.TrimSuffix(resource, "/devices")
				resource = strings.TrimSuffix(resource, ".deviceclass.resource.k8s.io")
			}
			limits = append(limits, fmt.Sprintf("%s %s/%s", resource, l.Used, l.Hard))
		}
		rows = append(rows, []string{
			n.Namespace, strconv.Itoa(n.GPUs), strconv.Itoa(n.MIGDevices), strconv.Itoa(n.Shares), gpus.Size(n.MemoryBytes), strings.Join(limits, ", "),
		})
	}
	s.Table(output.Columns("NAMESPACE", "GPUS", "MIG", "SHARES", "MEMORY", "LIMITS"), rows)
}
