package mig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

const about = `Give the GPUs of this node a fixed MIG layout, from a file in mig-parted's format.

Run it as root on the GPU node itself; it needs the driver, and no cluster. Fixed layouts are for workloads
outside of Dynamic Resource Allocation. An instance that is made here is none of Tessera's: the node's agent
never destroys it, no claim can have it, and its memory slices are withheld from claims while the rest of the
GPU is still offered. Nodes whose GPUs are for claims need no layout: the agent makes instances as claims ask.

What claims hold stays as it is, and a layout that would touch it is refused, with the claim's name. So is one
that would destroy what a process uses: the driver says no, and the GPU is left as it was.

Instances, and from Hopper on the mode, are gone after a reboot. To have them back, run "tessera mig apply"
from a systemd unit that is ordered after nvidia-persistenced.service and before kubelet.service, or from a
privileged init container of a DaemonSet.`

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var host Host
	cmd := &cobra.Command{Use: "mig", Short: "Fixed MIG layouts for this node: apply, assert, export", Long: about}
	host.addFlags(cmd.PersistentFlags())
	connect := func(ctx context.Context) (Node, error) {
		host.Drivers = flags.Drivers
		return open(ctx, host)
	}
	cmd.AddCommand(applyCommand(connect), assertCommand(connect), exportCommand(connect))
	return cmd
}

// opener opens this node.
type opener func(context.Context) (Node, error)

// choice is the layout that a user means.
type choice struct {
	file, label string
	modeOnly    bool
	in          io.Reader
}

// addFlags defines the flags; mig-parted's environment is their default.
func (c *choice) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.file, "config-file", "f", os.Getenv("MIG_PARTED_CONFIG_FILE"), "file of layouts; - is the standard input")
	cmd.Flags().StringVarP(&c.label, "selected-config", "c", os.Getenv("MIG_PARTED_SELECTED_CONFIG"), "label of the layout; may be left out when the file has only one")
	cmd.Flags().BoolVarP(&c.modeOnly, "mode-only", "m", false, "only the MIG modes, not the instances")
}

func (c choice) scope() Scope {
	if c.modeOnly {
		return ModeOnly
	}
	return Whole
}

// entries reads the layout.
func (c choice) entries() ([]Entry, error) {
	var data []byte
	var err error
	switch c.file {
	case "":
		return nil, errors.New("--config-file, or MIG_PARTED_CONFIG_FILE in the environment: must name a file of layouts")
	case "-":
		data, err = io.ReadAll(c.in)
	default:
		data, err = os.ReadFile(c.file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the layouts: %w", err)
	}
	config, err := Parse(data)
	if err != nil {
		return nil, err
	}
	return config.Select(c.label)
}

func applyCommand(open opener) *cobra.Command {
	var c choice
	cmd := &cobra.Command{
		Use:   "apply -f FILE [-c LABEL]",
		Short: "Make this node as the layout says; does nothing where it already is",
		Long: `Make this node as the layout says. Instances that are wanted stay where they are, others are destroyed,
and every order in which the missing ones could be placed is tried. In place of a number of instances a list
says where they begin: "3g.40gb": [4]. Before the first change every GPU is checked, so that a layout that
cannot be had changes nothing. Before Hopper the MIG mode changes with a reset of the GPU only, which this
command does not do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.in = cmd.InOrStdin()
			return apply(cmd.Context(), open, c, cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd)
	return cmd
}

// patience is how long the agents' locks are waited for.
const patience = 30 * time.Second

// apply decides under the GPUs' locks and does it, GPU by GPU.
func apply(ctx context.Context, open opener, c choice, out io.Writer) error {
	entries, err := c.entries()
	if err != nil {
		return err
	}
	node, err := open(ctx)
	if err != nil {
		return err
	}
	defer node.Close()
	_, targets, err := look(ctx, node, entries)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := node.Lock(waiting, names(targets))
	if err != nil {
		return err
	}
	defer unlock()
	changes, err := decide(ctx, node, entries, c.scope())
	if err != nil {
		return err
	}
	for _, change := range changes {
		if err := node.Executor().perform(ctx, change); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, change); err != nil {
			return err
		}
	}
	message := "The layout is in effect."
	if len(changes) == 0 {
		message = "The layout was in effect already: nothing was changed."
	}
	_, err = fmt.Fprintln(out, message)
	return err
}

// look reads the machine, and what the layout wants of it.
func look(ctx context.Context, node Node, entries []Entry) (machine, []target, error) {
	m, _, err := node.Look(ctx)
	if err != nil {
		return machine{}, nil, err
	}
	targets, err := m.targets(entries)
	return m, targets, err
}

// decide looks again: only what is read under the locks counts.
func decide(ctx context.Context, node Node, entries []Entry, scope Scope) ([]change, error) {
	m, targets, err := look(ctx, node, entries)
	if err != nil {
		return nil, err
	}
	changes, err := m.plan(targets, scope)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed:\n%w", err)
	}
	return changes, nil
}

// names returns the GPUs that are described, by name.
func names(targets []target) []string {
	var all []string
	for _, t := range targets {
		if t.described {
			all = append(all, t.gpu.Name())
		}
	}
	slices.Sort(all)
	return all
}

func assertCommand(open opener) *cobra.Command {
	var c choice
	var fileOnly bool
	cmd := &cobra.Command{
		Use:   "assert -f FILE [-c LABEL]",
		Short: "Exit with 0 if this node is as the layout says, with 1 if not",
		Long: `Exit with 0 if every GPU of this node is described by the layout and is so, with 1 if not, and say what
differs. Where instances lie matters only where the layout says it. What claims hold does not count.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.in = cmd.InOrStdin()
			if fileOnly {
				_, err := c.entries()
				return err
			}
			return assert(cmd.Context(), open, c, cmd.OutOrStdout())
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&fileOnly, "valid-config", false, "only check that the file can be read and has the layout; needs no driver")
	return cmd
}

func assert(ctx context.Context, open opener, c choice, out io.Writer) error {
	entries, err := c.entries()
	if err != nil {
		return err
	}
	node, err := open(ctx)
	if err != nil {
		return err
	}
	defer node.Close()
	m, targets, err := look(ctx, node, entries)
	if err != nil {
		return err
	}
	if found := m.deviations(targets, c.scope()); len(found) > 0 {
		return fmt.Errorf("the layout is not in effect:\n%s", strings.Join(found, "\n"))
	}
	_, err = fmt.Fprintln(out, "The layout is in effect.")
	return err
}

func exportCommand(open opener) *cobra.Command {
	var answer output.Flags
	var label string
	var starts bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print this node's layout as a file for apply",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			form := Counts
			if starts {
				form = Starts
			}
			return export(cmd.Context(), open, exporting{label, form, answer.Format, cmd.OutOrStdout(), cmd.ErrOrStderr()})
		},
	}
	cmd.Flags().StringVarP(&label, "config-label", "c", "current", "label of the layout")
	cmd.Flags().BoolVar(&starts, "placements", false, "say where instances begin, not only how many there are")
	answer.Add(cmd, output.YAML, output.JSON)
	return cmd
}

// exporting is how a layout is written.
type exporting struct {
	label       string
	form        Form
	format      output.Format
	out, errOut io.Writer
}

func export(ctx context.Context, open opener, e exporting) error {
	node, err := open(ctx)
	if err != nil {
		return err
	}
	defer node.Close()
	m, notes, err := node.Look(ctx)
	if err != nil {
		return err
	}
	config, err := m.export(e.label, e.form)
	if err != nil {
		return err
	}
	if len(m.holds) > 0 {
		notes = append(notes, fmt.Sprintf("What the %d claims on this node hold is left out.", claimCount(m.holds)))
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(e.errOut, note); err != nil {
			return err
		}
	}
	if e.format == output.JSON {
		return output.WriteJSON(e.out, config)
	}
	text, err := yaml.Marshal(config)
	if err == nil {
		_, err = e.out.Write(text)
	}
	return err
}

func claimCount(holds []hold) int {
	claims := map[string]bool{}
	for _, h := range holds {
		claims[cmp.Or(h.claim, h.GPU)] = true
	}
	return len(claims)
}
