package upgrade

import (
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

func planCommand(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var files []string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show which nodes change their driver, in which order, and how many pods lose their GPUs",
		Long: `Show the effect of the current ClusterPolicy and NVIDIADrivers: how many nodes change their driver, in which
waves, how many running pods lose their GPUs, and the progress of the current rollout. The installer computes
this and writes it into the status of these objects.

With -f, show the effect of the policies in the files without applying them. The command runs the installer's
code on the objects that you may read, and a dry run of the API server validates the policies. Selectors,
maintenance windows and budgets are taken into account; an edit that changes no driver changes no node.

The command changes nothing.`,
		Example: "  tessera upgrade plan\n  tessera upgrade plan -f policy.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			source, err := newSource(cmd.Context(), c, files, cmd.InOrStdin())
			if err != nil {
				return fmt.Errorf("connect to the cluster: %w", err)
			}
			return run(cmd.Context(), source, answer, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file with the edited ClusterPolicy or NVIDIADrivers, - for standard input")
	answer.Add(cmd, output.Name)
	return cmd
}

// source returns a report.
type source func(context.Context) (Report, error)

// newSource returns a source that reads the installer's status or, with files, one that previews them.
func newSource(ctx context.Context, c *cluster.Cluster, files []string, in io.Reader) (source, error) {
	if len(files) == 0 {
		client, err := dynamic.NewForConfig(c.Config)
		return func(ctx context.Context) (Report, error) { return loadReport(ctx, client) }, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	reader, err := client.New(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	namespace, err := c.SystemNamespace(ctx)
	return func(ctx context.Context) (Report, error) { return preview(ctx, reader, namespace, files, in) }, err
}

func run(ctx context.Context, load source, answer output.Flags, out io.Writer) error {
	report, err := load(ctx)
	if err != nil {
		return err
	}
	result := output.Result{Value: report, Draw: func(s *output.Screen) { draw(s, report) }}
	for _, d := range report.Drivers {
		result.Rows = append(result.Rows, output.Row{Name: resourceName(d.Name), Value: d})
	}
	return answer.Print(out, result)
}
