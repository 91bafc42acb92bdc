package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/chart"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Values are values of the chart, or a part of them.
type Values map[string]any

// Bare starts a lab as a cluster without Tessera: kube-scheduler, and nodes with GPUs and no GPU software. The nodes have all images that the chart's
// installation needs.
func Bare(ctx context.Context, c Config) (*Cluster, error) {
	if c.Nodes == nil {
		c.Nodes = BareNodes()
	}
	l, err := start(ctx, &c, InstallerImages, true)
	if err != nil {
		return nil, err
	}
	return connect(l)
}

// hookTimeout is helm's timeout for hooks. It exceeds the deadline in the chart, so that a hook reports its own
// failure.
const hookTimeout = 20 * time.Minute

// InstallChart installs or upgrades the chart of the repository as a user does: with the lab's images and the roots of the fake hardware, which values may
// override.
func (c *Cluster) InstallChart(ctx context.Context, values Values) error {
	helm, err := chart.New(ctx)
	if err != nil {
		return err
	}
	return c.install(ctx, helm, values, helm.Folder)
}

// InstallRelease is InstallChart with the chart of a release, a reference in a registry without TLS on loopback.
func (c *Cluster) InstallRelease(ctx context.Context, reference string) error {
	helm, err := chart.New(ctx)
	if err != nil {
		return err
	}
	return c.install(ctx, helm, nil, reference, "--plain-http")
}

// install installs or upgrades a chart.
func (c *Cluster) install(ctx context.Context, helm chart.Helm, values Values, source string, flags ...string) error {
	helm.Kubeconfig = c.Kubeconfig()
	text, err := yaml.Marshal(merged(labValues(), values))
	if err != nil {
		return err
	}
	file := filepath.Join(c.Folder(), "values.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	args := []string{"upgrade", "--install", chart.Release, source, "--namespace", Namespace, "--create-namespace", "--take-ownership", "--values", file,
		"--timeout", hookTimeout.String()}
	_, err = helm.Run(ctx, append(args, flags...)...)
	return err
}

// RemoveChart uninstalls the chart. The error includes the reason of a refused removal.
func (c *Cluster) RemoveChart(ctx context.Context) error {
	helm, err := chart.New(ctx)
	if err != nil {
		return err
	}
	helm.Kubeconfig = c.Kubeconfig()
	_, err = helm.Run(ctx, "uninstall", chart.Release, "--namespace", Namespace, "--timeout", hookTimeout.String())
	return err
}

// AwaitPolicy returns when the ClusterPolicy is Ready.
func (c *Cluster) AwaitPolicy(ctx context.Context, patience time.Duration) error {
	program, err := kubectl(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--kubeconfig", c.Kubeconfig(), "wait", "--for=condition=Ready", "clusterpolicy/default", "--timeout="+patience.String())
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl wait for the ClusterPolicy: %w: %s", err, output)
	}
	return nil
}

// labValues returns the only values in which an installation in a lab differs from the chart's defaults: the lab's images in the place of NVIDIA's,
// which need GPUs, and the roots of the fake hardware in the place of /proc, /sys and /dev.
func labValues() Values {
	image := func(repository string) Values { return Values{"repository": repository, "tag": "dev"} }
	return Values{
		"images": Values{
			"driver":       Values{"repository": DriverImage, "version": OldDriver},
			"gds":          image("localhost/tessera/nvidia-fs"),
			"gdrcopy":      image("localhost/tessera/gdrdrv"),
			"dcgm":         image("localhost/tessera/dcgm"),
			"dcgmExporter": image("localhost/tessera/dcgm-exporter"),
		},
		"clusterPolicy": Values{
			"hostPaths": Values{
				"proc": fakegpu.ProcRoot(lab.GPUFolder), "sys": fakegpu.SysRoot(lab.GPUFolder), "dev": fakegpu.DevRoot(lab.GPUFolder),
			},
		},
	}
}

// merged returns the values overridden by over.
func merged(values, over Values) Values {
	all := maps.Clone(values)
	for key, value := range over {
		below, isBelow := all[key].(Values)
		above, isAbove := value.(Values)
		if isBelow && isAbove {
			value = merged(below, above)
		}
		all[key] = value
	}
	return all
}
