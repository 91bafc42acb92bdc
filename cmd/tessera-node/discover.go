package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/installer/discovery"
)

// discoverCommand returns the discovery of a node. It requires permission to get Nodes, to get and create GPUNodes, and to
// patch their status.
func discoverCommand(c *config) *cobra.Command {
	f, at := &hostFlags{}, discovery.Host{}
	command := &cobra.Command{
		Use:   "discover",
		Short: "Report the node's GPUs, driver and host in its GPUNode, and keep the report current",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.node == "" {
				return errors.New("--node-name or $NODE_NAME must name the node")
			}
			access, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
			if err != nil {
				return fmt.Errorf("load the in-cluster configuration: %w", err)
			}
			access.UserAgent = discovery.Manager
			nodes, gpuNodes, err := discovery.Connect(access)
			if err != nil {
				return err
			}
			at.Roots = f.roots
			return discovery.New(c.node, at, nodes, gpuNodes).Run(cmd.Context())
		},
	}
	f.addRoots(command.Flags())
	addRuntime(command.Flags(), &at.ContainerdConfig, &at.CDI)
	return command
}
