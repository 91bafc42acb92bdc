package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

func newUp(p *place) *cobra.Command {
	var nodes []string
	var images []string
	var audit bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and return when its nodes are Ready (root)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := lab.Config{Folder: p.dir(), Hardware: hardware(), Images: images, Audit: audit, Progress: os.Stderr}
			for _, text := range nodes {
				config.Nodes = append(config.Nodes, parseNode(text))
			}
			l, err := lab.Start(cmd.Context(), config)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", l.Kubeconfig()) //nolint:errcheck // standard output
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&nodes, "nodes", defaultNodes(), "nodes, each NAME or NAME=GPU-SPEC")
	cmd.Flags().StringSliceVar(&images, "images", nil, "archives of images that every node has from the start")
	cmd.Flags().BoolVar(&audit, "audit", false, "let the API server log every request")
	return cmd
}

// defaultNodes returns the nodes of the demo and the suites.
func defaultNodes() []string {
	var texts []string
	for _, node := range cluster.Nodes() {
		texts = append(texts, node.Name+"="+node.GPU)
	}
	return texts
}

func newDown(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove all it made on this machine; twice is fine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return lab.Down(cmd.Context(), p.dir()) },
	}
}
