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
		Use:   "check -f FILE...",
		Short: "Validate manifests: parameters of claims, templates and DeviceClasses, and NodeConfigs",
		Long: `Validate manifests before they are applied: the GPU parameters of ResourceClaims, ResourceClaimTemplates and
DeviceClasses, including parameters that a claim inherits from DeviceClasses in the files, and NodeConfigs, also
in ConfigMaps. The node agent uses the same validation: it does not refuse parameters that pass here.

Other objects are skipped. FILE is a file, a folder, or - for standard input.`,
		Example: "  tessera check -f claim.yaml\n  kubectl kustomize deployments | tessera check -f -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			if len(files) == 0 {
				return errors.New("nothing to check: name a file or a folder with -f, or - for standard input")
			}
			documents, err := readDocuments(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return run(documents, drivers, answer, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "file or folder with manifests, - for standard input")
	cmd.Flags().StringSliceVar(&drivers, "driver", []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}, "names of the drivers whose parameters are validated")
	answer.Add(cmd)
	return cmd
}

// run validates the documents and writes the report. Its error has the number of invalid objects.
func run(documents []document, drivers []string, answer output.Flags, out io.Writer) error {
	report := checkDocuments(documents, drivers)
	result := output.Result{Value: report, Draw: func(s *output.Screen) { draw(s, report) }}
	for _, object := range report.Items {
		result.Rows = append(result.Rows, output.Row{Value: object})
	}
	if err := answer.Print(out, result); err != nil {
		return err
	}
	switch invalid := report.countInvalid(); {
	case len(report.Items) == 0:
		return errors.New("nothing to check: no ResourceClaim, ResourceClaimTemplate, DeviceClass or NodeConfig in the files")
	case invalid > 0:
		return fmt.Errorf("%d of %d objects are invalid", invalid, len(report.Items))
	}
	return nil
}
