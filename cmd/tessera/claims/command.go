package claims

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var all bool
	var selector string
	cmd := &cobra.Command{
		Use:   "claims [NAME...]",
		Short: "List the ResourceClaims on GPUs: pods, devices, states and reasons",
		Long: `List the ResourceClaims on GPUs of a namespace; with -A, of all namespaces.

STATE is Pending (no device allocated), Allocated (reserved for no pod), Preparing or Ready (its pods are
starting), InUse, Failed (the node's agent refused or lost a device) or Deleting. REASON is the message of the
scheduler, the node's agent or kubelet about a claim that is not in use.

With --watch, claims that are new or changed are listed again, and those that are gone are named.`,
		Example:           "  tessera claims -A\n  tessera claims --watch\n  tessera claims train -o yaml\n  tessera claims -l team=vision -o custom-columns=CLAIM:.name,NODE:.node",
		ValidArgsFunction: flags.Complete(Names),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := cluster.Validate(&answer, selector); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			r := request{selection: Selection{c.Namespace, selector}, names: names, answer: answer, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			if all {
				r.selection.Namespace = ""
			}
			return run(cmd.Context(), c, r)
		},
	}
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the claims of all namespaces")
	cluster.AddSelector(cmd, &selector, "claims")
	answer.Add(cmd, output.Wide, output.Name)
	answer.AddWatch(cmd)
	return cmd
}

// Names is a cluster.Completer with the claims on GPUs of the namespace.
func Names(ctx context.Context, c *cluster.Cluster, _ string) ([]string, error) {
	list, err := Load(ctx, c, Selection{Namespace: c.Namespace})
	var names []string
	for _, claim := range list.Items {
		names = append(names, claim.Name)
	}
	return names, err
}

// Selection selects the claims.
type Selection struct {
	// Namespace is empty for all namespaces.
	Namespace string
	// Selector is a label selector; empty for all claims.
	Selector string
}

// request is one call of the verb.
type request struct {
	selection Selection
	// names are those of the claims; empty for all claims.
	names  []string
	answer output.Flags
	// out receives the list, errOut messages about it.
	out, errOut io.Writer
}

func run(ctx context.Context, c *cluster.Cluster, r request) error {
	return listing.Verb{Load: r.load, Answer: r.answer, Out: r.out, ErrOut: r.errOut}.Run(ctx, c)
}

// load returns the selected claims.
func (r request) load(ctx context.Context, c *cluster.Cluster) (output.Result, error) {
	list, err := Load(ctx, c, r.selection)
	if err != nil {
		return output.Result{}, err
	}
	result := output.Result{Missing: list.keepNames(r.names), Rows: []output.Row{}, Problems: list.Problems}
	for _, claim := range list.Items {
		result.Rows = append(result.Rows, output.Row{
			Name: "resourceclaim.resource.k8s.io/" + claim.Name, Title: "Claim " + claim.Namespace + "/" + claim.Name, Value: claim,
		})
	}
	result.Value = list
	result.DrawRows = func(s *output.Screen, shown func(int) bool) { Draw(s, List{Items: output.Select(list.Items, shown)}) }
	switch {
	case len(list.Items) > 0:
	case r.selection.Namespace == "":
		result.Empty = "No claims on GPUs found."
	default:
		result.Empty = "No claims on GPUs found in " + r.selection.Namespace + "; -A lists all namespaces."
	}
	return result, nil
}

// keepNames removes all claims but the named ones; without names it keeps all. The error is about a name without a claim.
func (l *List) keepNames(names []string) error {
	if len(names) == 0 {
		return nil
	}
	l.Items = slices.DeleteFunc(l.Items, func(c Claim) bool { return !slices.Contains(names, c.Name) })
	for _, name := range names {
		if !slices.ContainsFunc(l.Items, func(c Claim) bool { return c.Name == name }) {
			return fmt.Errorf("no claim on GPUs is named %q; -A lists all namespaces", name)
		}
	}
	return nil
}

// Load lists the objects and returns the claims on GPUs. It fails without claims or pods; any other list that fails becomes a problem of the result.
func Load(ctx context.Context, c *cluster.Cluster, from Selection) (List, error) {
	var s cluster.State
	var err error
	if s.Claims, err = c.ListClaims(ctx, from.Namespace, from.Selector); err != nil {
		return List{}, err
	}
	if s.Pods, err = c.ListPods(ctx, from.Namespace); err != nil {
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
func Draw(s *output.Screen, list List) {
	device := deviceText
	if s.Wide {
		device = func(d Device) string { return d.Name }
	}
	var rows [][]string
	for _, c := range list.Items {
		reason := c.Reason
		if runes := []rune(reason); len(runes) > maxReason && !s.Wide {
			reason = string(runes[:maxReason-3]) + "..."
		}
		rows = append(rows, []string{
			c.Namespace, c.Name, strings.Join(c.Pods, ","), c.Node,
			strings.Join(mapDevices(c.Devices, device), ","),
			strings.Join(slices.Compact(mapDevices(c.Devices, shape)), ","), string(c.State), reason,
		})
	}
	s.Table(output.Columns("NAMESPACE", "CLAIM", "PODS", "NODE", "DEVICES", "SHAPE", "STATE", "REASON"), rows)
}

// deviceText returns the GPU's index and the device's part of it, such as 2:1g.10gb.
func deviceText(d Device) string {
	switch {
	case d.Index == nil:
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
