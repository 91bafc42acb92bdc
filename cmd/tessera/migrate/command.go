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
		Use:   "migrate FILE...",
		Short: "Convert the configuration of NVIDIA's GPU Operator to Tessera's objects",
		Long: `Convert the configuration of NVIDIA's GPU Operator to a ClusterPolicy and NVIDIADrivers of tessera.dev and print
them. Supported input: the operator's ClusterPolicy or Helm values, its NVIDIADrivers, and the configuration of
its MIG manager (also in a ConfigMap), whose layouts become pools of nodes.

Fields without a counterpart are listed in a comment at the top, with the reason and the alternative. Image tags
are copied or left out, never invented. FILE may be - for standard input. Nothing is applied.`,
		Example: "  kubectl get clusterpolicies.nvidia.com cluster-policy -o yaml | tessera migrate - > policy.yaml\n" +
			"  tessera migrate values.yaml --nvidiadriver drivers.yaml --mig-config config.yaml > policy.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			files := append(append(args, drivers...), layouts...)
			if len(files) == 0 {
				return errors.New("nothing to convert: name a file with a ClusterPolicy or Helm values, or - for standard input")
			}
			return run(files, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringSliceVar(&drivers, "nvidiadriver", nil, "file with NVIDIADrivers of the GPU Operator")
	cmd.Flags().StringSliceVar(&layouts, "mig-config", nil, "file with the configuration of the MIG manager (mig-parted)")
	return cmd
}

// run converts the files. It writes the objects to out and the number of unconverted fields to errOut.
func run(files []string, in io.Reader, out, errOut io.Writer) error {
	var sources []migrate.Source
	for _, file := range files {
		found, err := readSources(file, in)
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
	_, err = fmt.Fprintf(errOut, "%d fields were not converted: see the comment at the top of the output\n", len(result.Notes))
	return err
}

// readSources returns the objects of a file, a List as its items.
func readSources(file string, in io.Reader) ([]migrate.Source, error) {
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
