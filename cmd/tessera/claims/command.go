package claims

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var all bool
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List the claims on GPUs: their pods, devices and states, and why one waits",
		Long: `List the ResourceClaims on GPUs of a namespace, or of all with -A.

STATE is Pending (no device yet), Allocated (no pod may use it), Preparing and Ready (its pods are about to
start), InUse, Failed (the node's agent refused or lost a device) or Deleting. REASON is what the scheduler,
the node's agent or kubelet says about a claim that is not in use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			r := request{namespace: c.Namespace, answer: answer, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			if all {
				r.namespace = ""
			}
			return run(cmd.Context(), c, r)
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the claims of all namespaces")
	answer.Add(cmd, output.Text, output.Wide, output.JSON)
	return cmd
}

// request is what a user wants to see.
type request struct {
	// namespace is empty for all.
	namespace string
	answer    output.Flags
	// out takes the answer, errOut what is no part of it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	screen, err := output.NewScreen(r.out, r.answer.Color)
	if err != nil {
		return err
	}
	list, err := Load(ctx, c, r.namespace)
	if err != nil {
		return err
	}
	if r.answer.Format == output.JSON {
		return output.WriteJSON(r.out, list)
	}
	for _, problem := range list.Problems {
		if _, err := fmt.Fprintln(r.errOut, problem); err != nil {
			return err
		}
	}
	switch {
	case len(list.Items) == 0 && r.namespace == "":
		_, err := fmt.Fprintln(r.errOut, "No claims on GPUs found.")
		return err
	case len(list.Items) == 0:
		_, err := fmt.Fprintf(r.errOut, "No claims on GPUs found in %s; -A lists those of all namespaces.\n", r.namespace)
		return err
	}
	Draw(screen, list, r.answer.Format)
	return screen.Err()
}

// Load asks the cluster. Claims and pods are needed; what else may not be seen is a problem of the list.
func Load(ctx context.Context, c *cluster.Cluster, namespace string) (List, error) {
	var s cluster.State
	var err error
	if s.Claims, err = c.ListClaims(ctx, namespace); err != nil {
		return List{}, err
	}
	if s.Pods, err = c.ListPods(ctx, namespace); err != nil {
		return List{}, err
	}
	// Classes and slices belong to no namespace, and who works in one may not see them.
	var problems []string
	if s.Classes, err = c.ListClasses(ctx); err != nil {
		problems = append(problems, "Claims without devices are listed whatever they are on: "+err.Error())
	}
	if s.Slices, err = c.ListSlices(ctx); err != nil {
		problems = append(problems, "What the devices are is missing: "+err.Error())
	}
	list := Build(s, c.Drivers)
	list.Problems = problems
	return list, nil
}

// longestReason is where a reason ends in the narrow table.
const longestReason = 80

// Draw writes the list as a table. The wide one has the names of devices and the reasons in full.
func Draw(s *output.Screen, list List, format output.Format) {
	var rows [][]string
	for _, c := range list.Items {
		reason := c.Reason
		if runes := []rune(reason); len(runes) > longestReason && format != output.Wide {
			reason = string(runes[:longestReason-3]) + "..."
		}
		rows = append(rows, []string{
			c.Namespace, c.Name, strings.Join(c.Pods, ","), c.Node,
			strings.Join(each(c.Devices, func(d Device) string { return words(d, format) }), ","),
			strings.Join(slices.Compact(each(c.Devices, shape)), ","), string(c.State), reason,
		})
	}
	s.Table([]string{"NAMESPACE", "CLAIM", "PODS", "NODE", "DEVICES", "SHAPE", "STATE", "REASON"}, rows)
}

// words names the device: GPU 2 (1g.10gb), or by its own name.
func words(d Device, format output.Format) string {
	switch {
	case d.Index == nil, format == output.Wide:
		return d.Name
	case d.What == "":
		return fmt.Sprintf("%d", *d.Index)
	}
	return fmt.Sprintf("%d:%s", *d.Index, strings.ReplaceAll(d.What, " ", "/"))
}

func shape(d Device) string { return d.Shape }

func each(devices []Device, f func(Device) string) []string {
	var texts []string
	for _, d := range devices {
		texts = append(texts, f(d))
	}
	return texts
}
