package cluster

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Request is one call of a verb that changes an object.
type Request struct {
	Target Target
	DryRun DryRun
	// Out receives the report.
	Out io.Writer
}

// Report writes what the verb did.
func (r Request) Report(text string) error {
	_, err := fmt.Fprintf(r.Out, "%s: %s\n", r.Target, text)
	return err
}

// ChangeVerb makes the command one that changes an object of the kinds: it adds the argument with its completion, the flag --dry-run, and the function, which
// gets the connection.
func (f *Flags) ChangeVerb(run func(context.Context, *Cluster, Request) error, kinds []Kind, cmd *cobra.Command) *cobra.Command {
	var dryRun DryRun
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), f.Complete(TargetNames(kinds...))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := dryRun.Validate(); err != nil {
			return err
		}
		target, err := ParseTarget(args, kinds...)
		if err != nil {
			return err
		}
		c, err := f.ConnectSupported()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, Request{target, dryRun, cmd.OutOrStdout()})
	}
	dryRun.Add(cmd)
	return cmd
}
