package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/dra-driver/cuda"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/dra-driver/validate"
	"github.com/tessera-gpu/tessera/installer/host"
)

// validateCommand returns the command of the installer's validations. It uses what its container has and none of the agent's configuration.
func validateCommand() *cobra.Command {
	terminationLog := ""
	config := validate.Config{GPUs: func() ([]nvml.VisibleGPU, error) { return nvml.Visible("libnvidia-ml.so.1") }}
	c := &cobra.Command{
		Use:   "validate",
		Short: "Compute on every GPU and MIG device of this container and check the results",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the program: %w", err)
			}
			config.Out, config.Compute = cmd.OutOrStdout(), validate.InProcess(program, "validate", "device")
			config.Note = func(text string) error { return host.WriteTerminationMessage(terminationLog, []byte(text)) }
			err = validate.Run(cmd.Context(), config)
			if err == nil {
				return nil
			}
			// Otherwise kubelet takes the end of the log, in which the lines of the two streams have no fixed order.
			return errors.Join(err, config.Note(err.Error()))
		},
	}
	c.Flags().BoolVar(&config.MIG, "mig", false, "require that the container has a MIG device")
	addTerminationLog(c.Flags(), &terminationLog)
	c.AddCommand(&cobra.Command{
		Use:    "device UUID",
		Short:  "Compute on the device that CUDA_VISIBLE_DEVICES names, and print a failure as JSON",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if failure := cuda.Compute(cuda.Library, args[0]); failure != nil {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(failure)
			}
			return nil
		},
	})
	return c
}
