package upgrade

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Plan, pause, resume and roll back upgrades of drivers",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(planCommand(flags), pauseCommand(flags), resumeCommand(flags), rollbackCommand(flags))
	return cmd
}

func pauseCommand(flags *cluster.Flags) *cobra.Command {
	return verb(flags, pause, []cluster.Kind{cluster.Policy, cluster.Driver, cluster.GPUNode}, &cobra.Command{
		Use:   "pause [nvidiadriver/NAME|gpunode/NODE]",
		Short: "Pause upgrades after the nodes in progress",
		Long: `Pause the upgrades of the cluster or, with an argument, those of one NVIDIADriver or node. Nodes in progress finish;
no further node starts.

Sets the annotation ` + v1alpha1.AnnotationPause + ` on the object.`,
		Example: "  tessera upgrade pause\n  tessera upgrade pause gpunode/gpu-a",
	})
}

func resumeCommand(flags *cluster.Flags) *cobra.Command {
	return verb(flags, resume, []cluster.Kind{cluster.Policy, cluster.Driver, cluster.GPUNode}, &cobra.Command{
		Use:   "resume [nvidiadriver/NAME|gpunode/NODE]",
		Short: "Resume or start upgrades",
		Long: `Continue upgrades after a pause, or start a rollout that is not automatic.

After "tessera upgrade pause", removes the annotation ` + v1alpha1.AnnotationPause + `. A rollout that failures
paused, or that waits because of upgrade.auto: false, is permitted by the annotation
` + v1alpha1.AnnotationResume + `, set to the digest of the current rollout: later rollouts are not permitted by it.`,
		Example: "  tessera upgrade resume\n  tessera upgrade resume nvidiadriver/h100",
	})
}

func rollbackCommand(flags *cluster.Flags) *cobra.Command {
	var version string
	cmd := verb(flags, func(ctx context.Context, c *cluster.Cluster, r request) error { return rollback(ctx, c, r, version) },
		[]cluster.Kind{cluster.Policy, cluster.Driver}, &cobra.Command{
			Use:   "rollback [nvidiadriver/NAME]",
			Short: "Return to the previous version of the driver",
			Long: `Set the version of the driver to the previous one: nodes with the new driver return to it, within the limits of the
upgrade policy.

Without --to-version, the version is the one that passed validation last on the nodes that do not run the new
driver. After a finished rollout no node has it: name it. Sets spec.driver.version of the ClusterPolicy, or
spec.version of the NVIDIADriver. If Helm or GitOps manages the object, change the version there as well.`,
			Example: "  tessera upgrade rollback\n  tessera upgrade rollback --to-version 580.65.06 --dry-run=server",
		})
	cmd.Flags().StringVar(&version, "to-version", "", "version of the driver (default the last good one of the nodes)")
	return cmd
}

// request is one call of a verb that changes an object.
type request struct {
	target cluster.Target
	dryRun cluster.DryRun
	out    io.Writer
}

// verb adds flags, completion and the function to the command. kinds are those of its argument.
func verb(flags *cluster.Flags, run func(context.Context, *cluster.Cluster, request) error, kinds []cluster.Kind, cmd *cobra.Command) *cobra.Command {
	var dryRun cluster.DryRun
	cmd.Args, cmd.ValidArgsFunction = cobra.MaximumNArgs(1), flags.Complete(cluster.TargetNames(kinds...))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := dryRun.Validate(); err != nil {
			return err
		}
		target, err := cluster.ParseTarget(args, kinds...)
		if err != nil {
			return err
		}
		c, err := flags.ConnectSupported()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, request{target, dryRun, cmd.OutOrStdout()})
	}
	dryRun.Add(cmd)
	return cmd
}

// report writes what the verb did.
func (r request) report(text string) error {
	_, err := fmt.Fprintf(r.out, "%s: %s\n", r.target, text)
	return err
}
