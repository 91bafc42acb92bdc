package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// rollback sets the version of the driver; without a version, to the last good one of the nodes.
func rollback(ctx context.Context, c *cluster.Cluster, r cluster.Request, version string) error {
	current, owner, err := currentVersion(ctx, c, r.Target)
	if err != nil {
		return err
	}
	if version == "" {
		if version, err = lastGoodVersion(ctx, c, owner, current); err != nil {
			return fmt.Errorf("%s: %w", r.Target, err)
		}
	}
	if version == current {
		return r.Report("the version of the driver is already " + version)
	}
	fields := map[string]any{"version": version}
	if r.Target.Kind == cluster.Policy {
		fields = map[string]any{"driver": fields}
	}
	if err := c.Apply(ctx, cluster.Change{Target: r.Target, Fields: map[string]any{"spec": fields}}, r.DryRun); err != nil {
		return err
	}
	if current == "" {
		current = "the default version"
	}
	return r.Report(fmt.Sprintf("driver changed from %s to %s%s; \"tessera upgrade plan\" shows the effect", current, version, r.DryRun.Suffix()))
}

// currentVersion returns the desired version of the object's driver, and the object's name in the GPUNodes.
func currentVersion(ctx context.Context, c *cluster.Cluster, target cluster.Target) (version, owner string, err error) {
	if target.Kind == cluster.Policy {
		var policy v1alpha1.ClusterPolicy
		err := c.Read(ctx, target, &policy)
		return policy.Spec.Driver.Version, "ClusterPolicy/" + target.Name, err
	}
	var driver v1alpha1.NVIDIADriver
	err = c.Read(ctx, target, &driver)
	return driver.Spec.Version, target.Name, err
}

// lastGoodVersion returns the version that the nodes of the owner validated last and that is not the current one.
func lastGoodVersion(ctx context.Context, c *cluster.Cluster, owner, current string) (string, error) {
	nodes, err := c.ListGPUNodes(ctx)
	if err != nil {
		return "", err
	}
	found := map[string]int{}
	for _, n := range nodes {
		good := n.Status.LastGoodDriver
		if good != nil && good.Version != "" && good.Version != current && (good.Owner == owner || n.Spec.Driver != nil && n.Spec.Driver.Owner == owner) {
			found[good.Version]++
		}
	}
	versions := slices.Sorted(maps.Keys(found))
	switch len(versions) {
	case 0:
		return "", fmt.Errorf("no node has run another driver than %s: name the version with --to-version", current)
	case 1:
		return versions[0], nil
	}
	return "", fmt.Errorf("nodes have run the drivers %s: select one with --to-version", strings.Join(versions, ", "))
}
