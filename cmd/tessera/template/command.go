package template

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
)

// Command returns the verb.
func Command() *cobra.Command {
	var answer output.Flags
	var machine, config string
	var versions versions
	var karpenter bool
	cmd := &cobra.Command{
		Use:   "template --machine NAME",
		Short: "Print the ResourceSlices that a new node would publish, for autoscalers",
		Long: `Print the ResourceSlices that a new node with the machine's GPUs would publish: the text lists the kinds of devices,
-o yaml and -o json print the objects. Cluster Autoscaler reads them for a node group without nodes.

Values that differ from node to node (UUIDs, PCI addresses, device names) are placeholders, which are equal where
those of a node are equal. So are the versions of driver and CUDA without their flags: 0.0.0.

With --karpenter, the objects are Karpenter's DynamicResources of an instance type: attributes with such values are
left out, and AttributeBindings list the devices that will have equal ones.`,
		Example: "  tessera template --machine h100x8\n  tessera template --machine h100x8 -o yaml > slices.yaml\n" +
			"  tessera template --machine a100x8 --node-config node-config.yaml --driver-version 580.65.06 --karpenter -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			if err := versions.validate(); err != nil {
				return err
			}
			t, err := load(machine, config, versions)
			if err != nil {
				return err
			}
			result := output.Result{Value: t.list(), Draw: t.draw}
			if karpenter {
				result.Value = t.dynamicResources()
			}
			return answer.Print(cmd.OutOrStdout(), result)
		},
	}
	cmd.Flags().StringVar(&machine, "machine", "", "name of the machine, such as h100x8; an unknown name lists all")
	cmd.Flags().StringVar(&config, "node-config", "", "file with the NodeConfig of the node (default the defaults of every field)")
	cmd.Flags().StringVar(&versions.driver, "driver-version", "", "version of the driver, such as 580.65.06")
	cmd.Flags().StringVar(&versions.cuda, "cuda-version", "", "CUDA version of the driver, such as 13.0")
	cmd.Flags().BoolVar(&karpenter, "karpenter", false, "print Karpenter's DynamicResources instead of ResourceSlices")
	answer.Add(cmd)
	// Registering and requiring fail only for a flag that does not exist.
	_ = cmd.MarkFlagRequired("machine")
	_ = cmd.MarkFlagFilename("node-config", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("machine", completeMachines)
	return cmd
}

// completeMachines completes the names of machines.
func completeMachines(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	machines, err := catalog.Machines()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// load returns the template of the machine with the configuration in the file, or with the defaults.
func load(machine, file string, versions versions) (template, error) {
	m, err := catalog.FindMachine(machine)
	if err != nil {
		return template{}, fmt.Errorf("--machine %q: %w", machine, err)
	}
	config := v1alpha1.Default()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return template{}, err
		}
		if config, err = v1alpha1.Load(text); err != nil {
			return template{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	options, err := publish.Options(config.NodeConfigSpec)
	if err != nil {
		return template{}, err
	}
	return newTemplate(m, options, versions)
}
