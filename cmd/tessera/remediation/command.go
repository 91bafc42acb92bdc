// Package remediation implements the verb remediation, which pauses and resumes the installer's remediation of faulted GPUs.
package remediation

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remediation",
		Short: "Pause and resume the remediation of faulted GPUs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		verb(flags, pause, &cobra.Command{
			Use:   "pause [gpunode/NODE]",
			Short: "Pause remediation in the cluster or on a node",
			Long: `Pause remediation in the cluster or, with an argument, on one node: no remediation starts, and GPUs that were
held and not yet reset return to service.

Sets the annotation ` + v1alpha1.AnnotationPauseRemediation + ` on the ClusterPolicy or the GPUNode.`,
			Example: "  tessera remediation pause\n  tessera remediation pause gpunode/gpu-a",
		}),
		verb(flags, resume, &cobra.Command{
			Use:   "resume [gpunode/NODE]",
			Short: "Resume remediation in the cluster or on a node",
			Long: `Resume remediation in the cluster or, with an argument, on one node.

Removes the annotation ` + v1alpha1.AnnotationPauseRemediation + ` from the ClusterPolicy or the GPUNode.`,
			Example: "  tessera remediation resume\n  tessera remediation resume gpunode/gpu-a",
		}))
	return cmd
}

// request is one call of a verb.
type request struct {
	target cluster.Target
	dryRun cluster.DryRun
	out    io.Writer
}

// verb adds flags, completion and the function to the command.
func verb(flags *cluster.Flags, run func(context.Context, *cluster.Cluster, request) error, cmd *cobra.Command) *cobra.Command {
	var dryRun cluster.DryRun
	kinds := []cluster.Kind{cluster.Policy, cluster.GPUNode}
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

// pause sets the annotation.
func pause(ctx context.Context, c *cluster.Cluster, r request) error {
	var object metav1.PartialObjectMetadata
	if err := c.Read(ctx, r.target, &object); err != nil {
		return err
	}
	if v1alpha1.RemediationPaused(object.Annotations) {
		return r.report("remediation is already paused")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.target, v1alpha1.AnnotationPauseRemediation, new("true")), r.dryRun); err != nil {
		return err
	}
	return r.report("remediation paused: none starts, and GPUs that were not yet reset return to service" + r.dryRun.Suffix())
}

// resume removes the annotation.
func resume(ctx context.Context, c *cluster.Cluster, r request) error {
	var object metav1.PartialObjectMetadata
	if err := c.Read(ctx, r.target, &object); err != nil {
		return err
	}
	if !v1alpha1.RemediationPaused(object.Annotations) {
		return r.report("remediation is not paused")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.target, v1alpha1.AnnotationPauseRemediation, nil), r.dryRun); err != nil {
		return err
	}
	return r.report("remediation resumed" + r.dryRun.Suffix())
}

// report writes what the verb did.
func (r request) report(text string) error {
	_, err := fmt.Fprintf(r.out, "%s: %s\n", r.target, text)
	return err
}
