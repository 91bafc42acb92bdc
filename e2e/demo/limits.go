package main

import (
	"context"
	"embed"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

//go:embed limits.yaml
var limitsManifest embed.FS

// showLimits runs the pods of limits.yaml on the node whose driver limits GPU memory, and returns the number of unexpected results.
func showLimits(ctx context.Context, c *cluster.Cluster) (failed int, err error) {
	if !slices.ContainsFunc(c.Nodes(), func(n *lab.Node) bool { return n.Name() == cluster.LimitedNode }) {
		fmt.Println("\nleft out: limits of GPU memory. Containers of this host have control group namespaces, in which the simulated control groups are not found.")
		return 0, nil
	}
	examples, err := expect.Load(limitsManifest)
	if err != nil {
		return 0, err
	}
	fmt.Printf("\nlimits of GPU memory: %s has driver %s and the controller dmem of Linux 6.14; like the GPUs, both are simulated\n", cluster.LimitedNode, cluster.LimitedDriver)
	return runExamples(ctx, c, examples)
}

// withLimited adds the node with limits to those of a demo, if this host can have it.
func withLimited(c cluster.Config) (cluster.Config, error) {
	can, err := cluster.CanLimit()
	c.Nodes = cluster.BareNodes()
	if can {
		c.Nodes = append(c.Nodes, cluster.Limited())
	}
	return c, err
}
