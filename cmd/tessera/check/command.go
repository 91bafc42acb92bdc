package check

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// Command returns the verb.
func Command() *cobra.Command {
	var answer output.Flags
	var files, drivers []string
	cmd := &cobra.Command{
		Use:   "check -f file...",
		Short: "Check manifests: the parameters of claims, templates and DeviceClasses, and NodeConfigs",
		Long: `Check manifests before they are applied: the parameters for GPUs in ResourceClaims, ResourceClaimTemplates
and DeviceClasses, with what a claim inherits from the DeviceClasses among the files, and NodeConfigs, also
those in ConfigMaps. The verdict is the node agent's: what passes here is not refused when a pod starts.
Other objects are passed over. A file may be a folder, or - for the standard input.`,
		Example: "  tessera check -f claim.yaml\n  kubectl kustomize deployments | tessera check -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			if len(files) == 0 {
				return errors.New("nothing to check: name a file or a folder with -f, or - for the standard input")
			}
			documents, err := read(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return run(documents, drivers, answer, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or folder with manifests, - for the standard input")
	cmd.Flags().StringSliceVar(&drivers, "driver", []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}, "driver names whose parameters are checked")
	answer.Add(cmd, output.Text, output.JSON)
	return cmd
}

// run judges the documents and writes the report. Its error says how many objects are wrong.
func run(documents []document, drivers []string, answer output.Flags, out io.Writer) error {
	report := judge(documents, drivers)
	if answer.Format == output.JSON {
		if err := output.WriteJSON(out, report); err != nil {
			return err
		}
	} else {
		screen, err := output.NewScreen(out, answer.Color)
		if err != nil {
			return err
		}
		draw(screen, report)
		if err := screen.Err(); err != nil {
			return err
		}
	}
	switch wrong := report.wrong(); {
	case len(report.Items) == 0:
		return errors.New("nothing to check: no ResourceClaim, ResourceClaimTemplate, DeviceClass or NodeConfig in the files")
	case wrong > 0:
		return fmt.Errorf("%d of %d objects are wrong", wrong, len(report.Items))
	}
	return nil
}
