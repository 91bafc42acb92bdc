package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Tell what the installer is about to do",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(upgrade(flags))
	return cmd
}

func upgrade(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var files []string
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Tell which nodes change their driver, in which order, and how many pods that costs their GPUs",
		Long: `Tell what the last edits of ClusterPolicy and NVIDIADrivers do to nodes: how many change their driver, in which
waves, how many running pods lose their GPUs, and where a rollout that is under way stands. The installer has worked it out.

With -f, tell what it would do if these policies were applied: the same code decides, here, by what you may read in the cluster, and the
API server says whether it would take them. Selectors, windows and budgets count; an edit that touches no driver touches nobody.
Nothing is changed by asking.`,
		Example: "  tessera plan upgrade\n  tessera plan upgrade -f policy.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			source, err := from(c, flags, files, cmd.InOrStdin())
			if err != nil {
				return fmt.Errorf("find the cluster: %w", err)
			}
			return run(cmd.Context(), source, answer, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file with a ClusterPolicy or NVIDIADrivers as they would be, - for the standard input")
	answer.Add(cmd, output.Text, output.JSON)
	return cmd
}

// source says what is about to happen.
type source func(context.Context) (Report, error)

// from returns the source that the flags ask for: what the installer says or, with files, what would be.
func from(c *cluster.Cluster, flags *cluster.Flags, files []string, in io.Reader) (source, error) {
	if len(files) == 0 {
		asked, err := dynamic.NewForConfig(c.Config)
		return func(ctx context.Context) (Report, error) { return load(ctx, asked) }, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	asked, err := client.New(c.Config, client.Options{Scheme: scheme})
	namespace := cmp.Or(flags.Namespace, cluster.SystemNamespace)
	return func(ctx context.Context) (Report, error) { return foresee(ctx, asked, namespace, files, in) }, err
}

func run(ctx context.Context, ask source, answer output.Flags, out io.Writer) error {
	screen, err := output.NewScreen(out, answer.Color)
	if err != nil {
		return err
	}
	report, err := ask(ctx)
	if err != nil {
		return err
	}
	if answer.Format == output.JSON {
		return output.WriteJSON(out, report)
	}
	draw(screen, report)
	return screen.Err()
}
