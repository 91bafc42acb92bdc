package main

import (
	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// group is an OCI hook (createRuntime) that gives the container's control group the files of controllers, in a tree in the place of the hierarchy: for hosts
// whose hierarchy of version 2 does not have them.
func group(dir *string) *cobra.Command {
	var controllers []string
	command := &cobra.Command{
		Use:   "group",
		Short: "As an OCI hook: make the container's control group in the machine's tree",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return fakegpu.AddGroupOf(*dir, c.InOrStdin(), controllers...)
		},
	}
	command.Flags().StringSliceVar(&controllers, "controllers", []string{"misc", "dmem"}, "controllers of the group")
	return command
}
