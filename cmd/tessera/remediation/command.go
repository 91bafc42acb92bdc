// Package remediation implements the verb remediation, which pauses and resumes the installer's remediation of faulted GPUs.
package remediation

import (
	"context"

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
	kinds := []cluster.Kind{cluster.Policy, cluster.GPUNode}
	cmd.AddCommand(
		flags.ChangeVerb(pause, kinds, &cobra.Command{
			Use:   "pause [gpunode/NODE]",
			Short: "Pause remediation in the cluster or on a node",
			Long: `Pause remediation in the cluster or, with an argument, on one node: no remediation starts, and GPUs that were
held and not yet reset return to service.

Sets the annotation ` + v1alpha1.AnnotationPauseRemediation + ` on the ClusterPolicy or the GPUNode.`,
			Example: "  tessera remediation pause\n  tessera remediation pause gpunode/gpu-a",
		}),
		flags.ChangeVerb(resume, kinds, &cobra.Command{
			Use:   "resume [gpunode/NODE]",
			Short: "Resume remediation in the cluster or on a node",
			Long: `Resume remediation in the cluster or, with an argument, on one node.

Removes the annotation ` + v1alpha1.AnnotationPauseRemediation + ` from the ClusterPolicy or the GPUNode.`,
			Example: "  tessera remediation resume\n  tessera remediation resume gpunode/gpu-a",
		}))
	return cmd
}

// pause sets the annotation.
func pause(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
	var object metav1.PartialObjectMetadata
	if err := c.Read(ctx, r.Target, &object); err != nil {
		return err
	}
	if v1alpha1.RemediationPaused(object.Annotations) {
		return r.Report("remediation is already paused")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.Target, v1alpha1.AnnotationPauseRemediation, new("true")), r.DryRun); err != nil {
		return err
	}
	return r.Report("remediation paused: none starts, and GPUs that were not yet reset return to service" + r.DryRun.Suffix())
}

// resume removes the annotation.
func resume(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
	var object metav1.PartialObjectMetadata
	if err := c.Read(ctx, r.Target, &object); err != nil {
		return err
	}
	if !v1alpha1.RemediationPaused(object.Annotations) {
		return r.Report("remediation is not paused")
	}
	if err := c.Apply(ctx, cluster.Annotate(r.Target, v1alpha1.AnnotationPauseRemediation, nil), r.DryRun); err != nil {
		return err
	}
	return r.Report("remediation resumed" + r.DryRun.Suffix())
}
