package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/internal/host/cgroup"
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
			path, err := groupOf(c.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fakegpu.AddGroup(*dir, path, controllers...)
			return err
		},
	}
	command.Flags().StringSliceVar(&controllers, "controllers", []string{"misc", "dmem"}, "controllers of the group")
	return command
}

// groupOf returns the path of the group of the container whose OCI state is read.
func groupOf(state io.Reader) (string, error) {
	var container struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(state).Decode(&container); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(container.PID), "cgroup"))
	if err != nil {
		return "", err
	}
	if path, found := cgroup.Unified(string(text)); found {
		return path, nil
	}
	return "", fmt.Errorf("process %d has no control group of version 2", container.PID)
}
