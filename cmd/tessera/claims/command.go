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
		Short: "List the ResourceClaims on GPUs: pods, devices, states and reasons",
		Long: `List the ResourceClaims on GPUs of a namespace; with -A, of all namespaces.

STATE is Pending (no device allocated), Allocated (reserved for no pod), Preparing or Ready (its pods are
starting), InUse, Failed (the node's agent refused or lost a device) or Deleting. REASON is the message of the
scheduler, the node's agent or kubelet about a claim that is not in use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
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

// request is one call of the verb.
type request struct {
	// namespace is empty for all namespaces.
	namespace string
	answer    output.Flags
	// out receives the list, errOut messages about it.
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
		_, err := fmt.Fprintf(r.errOut, "No claims on GPUs found in %s; -A lists all namespaces.\n", r.namespace)
		return err
	}
	Draw(screen, list, r.answer.Format)
	return screen.Err()
}

// Load lists the objects and returns the claims on GPUs. It fails without claims or pods; any other list that fails becomes a problem of the result.
func Load(ctx context.Context, c *cluster.Cluster, namespace string) (List, error) {
	var s cluster.State
	var err error
	if s.Claims, err = c.ListClaims(ctx, namespace); err != nil {
		return List{}, err
	}
	if s.Pods, err = c.ListPods(ctx, namespace); err != nil {
		return List{}, err
	}
	// DeviceClasses and ResourceSlices are cluster-scoped: users with permissions in one namespace may not list them.
	var problems []string
	if s.Classes, err = c.ListClasses(ctx); err != nil {
		problems = append(problems, "Pending claims are listed without regard to their class: "+err.Error())
	}
	if s.Slices, err = c.ListResourceSlices(ctx); err != nil {
		problems = append(problems, "Shapes of devices are missing: "+err.Error())
	}
	list := Build(s, c.Drivers)
	list.Problems = problems
	return list, nil
}

// maxReason is the length of a reason in the narrow table, in characters.
const maxReason = 80

// Draw writes the list as a table. The wide one has the names of devices and the reasons in full.
func Draw(s *output.Screen, list List, format output.Format) {
	var rows [][]string
	for _, c := range list.Items {
		reason := c.Reason
		if runes := []rune(reason); len(runes) > maxReason && format != output.Wide {
			reason = string(runes[:maxReason-3]) + "..."
		}
		rows = append(rows, []string{
			c.Namespace, c.Name, strings.Join(c.Pods, ","), c.Node,
			strings.Join(mapDevices(c.Devices, func(d Device) string { return deviceText(d, format) }), ","),
			strings.Join(slices.Compact(mapDevices(c.Devices, shape)), ","), string(c.State), reason,
		})
	}
	s.Table([]string{"NAMESPACE", "CLAIM", "PODS", "NODE", "DEVICES", "SHAPE", "STATE", "REASON"}, rows)
}

// deviceText returns the GPU's index and the device's part of it, such as 2:1g.10gb; in the wide format the device's name.
func deviceText(d Device, format output.Format) string {
	switch {
	case d.Index == nil, format == output.Wide:
		return d.Name
	case d.Part == "":
		return fmt.Sprintf("%d", *d.Index)
	}
	return fmt.Sprintf("%d:%s", *d.Index, strings.ReplaceAll(d.Part, " ", "/"))
}

func shape(d Device) string { return d.Shape }

// mapDevices returns the result of f for each device.
func mapDevices(devices []Device, f func(Device) string) []string {
	var texts []string
	for _, d := range devices {
		texts = append(texts, f(d))
	}
	return texts
}
