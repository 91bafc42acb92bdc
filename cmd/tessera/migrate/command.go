package migrate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tessera-gpu/tessera/installer/migrate"
)

// Command returns the verb.
func Command() *cobra.Command {
	var drivers, layouts []string
	cmd := &cobra.Command{
		Use:   "migrate file...",
		Short: "Turn a policy or values of NVIDIA's GPU Operator into objects of the installer",
		Long: `Print a ClusterPolicy and NVIDIADrivers of tessera.dev for what was written for NVIDIA's GPU Operator: its ClusterPolicy
or the values of its Helm chart, its NVIDIADrivers, and the configuration of its MIG manager, whose layouts become pools of nodes.
A ConfigMap with that configuration is taken as well. Fields without a counterpart are listed in a comment above, with the reason and
what to do instead. Tags of images are taken over or left out, never made up. A file may be - for the standard input. Nothing is applied.`,
		Example: "  kubectl get clusterpolicies.nvidia.com cluster-policy -o yaml | tessera migrate - > policy.yaml\n" +
			"  tessera migrate values.yaml --nvidiadriver drivers.yaml --mig-config config.yaml > policy.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			files := append(append(args, drivers...), layouts...)
			if len(files) == 0 {
				return errors.New("nothing to convert: name the file of a ClusterPolicy or of Helm values, or - for the standard input")
			}
			return run(files, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&drivers, "nvidiadriver", nil, "file with NVIDIADrivers of the GPU Operator")
	cmd.Flags().StringSliceVar(&layouts, "mig-config", nil, "file with the configuration of its MIG manager (mig-parted)")
	return cmd
}

// run reads the files, and writes the objects to out and how much was not converted to errOut.
func run(files []string, in io.Reader, out, errOut io.Writer) error {
	var sources []migrate.Source
	for _, file := range files {
		found, err := read(file, in)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		sources = append(sources, found...)
	}
	result, err := migrate.Convert(sources...)
	if err != nil {
		return err
	}
	if err := result.Write(out); err != nil {
		return err
	}
	if len(result.Notes) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(errOut, "%d fields were not converted: the comment at the beginning of the output says why, and what to do\n", len(result.Notes))
	return err
}

// read returns the sources in a file; a List is its items.
func read(file string, in io.Reader) ([]migrate.Source, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	var documents [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	sources, err := migrate.Read(documents)
	if err != nil {
		return nil, err
	}
	var all []migrate.Source
	for _, source := range sources {
		items, list := source["items"].([]any)
		if !list {
			all = append(all, source)
			continue
		}
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				all = append(all, object)
			}
		}
	}
	return all, nil
}
