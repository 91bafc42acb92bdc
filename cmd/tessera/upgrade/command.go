package upgrade

import (
	"context"

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
	return flags.ChangeVerb(pause, []cluster.Kind{cluster.Policy, cluster.Driver, cluster.GPUNode}, &cobra.Command{
		Use:   "pause [nvidiadriver/NAME|gpunode/NODE]",
		Short: "Pause upgrades after the nodes in progress",
		Long: `Pause the upgrades of the cluster or, with an argument, those of one NVIDIADriver or node. Nodes in progress finish;
no further node starts.

Sets the annotation ` + v1alpha1.AnnotationPause + ` on the object.`,
		Example: "  tessera upgrade pause\n  tessera upgrade pause gpunode/gpu-a",
	})
}

func resumeCommand(flags *cluster.Flags) *cobra.Command {
	return flags.ChangeVerb(resume, []cluster.Kind{cluster.Policy, cluster.Driver, cluster.GPUNode}, &cobra.Command{
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
	run := func(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
		return rollback(ctx, c, r, version)
	}
	cmd := flags.ChangeVerb(run, []cluster.Kind{cluster.Policy, cluster.Driver}, &cobra.Command{
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
