// Package lab runs a real Kubernetes cluster on one host, for tests: real etcd, API server, controllers and scheduler,
// and nodes with real kubelets, containerd and runc. Only the GPUs are simulated, by the caller's Hardware. Nodes can
// be killed, rebooted and disconnected.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// Base is the default parent folder of labs.
const Base = "/run/tessera-lab"

// Hardware creates the GPUs of a node. The lab gives each node with a GPU spec a folder that persists across reboots,
// on a file system that supports device nodes. The node sees it at GPUFolder, the host at Node.GPUFolder.
type Hardware interface {
	// Install fills the empty folder of the node according to its GPU spec, once, before the node's first boot.
	Install(ctx context.Context, node NodeSpec, folder string) error
	// Reboot applies the effects of a power cycle to the hardware. The node is down during the call.
	Reboot(ctx context.Context, folder string) error
	// Boot passes the boot ID that kubelet will report to the hardware, before each boot of the node.
	Boot(ctx context.Context, folder, bootID string) error
}

// GPUFolder is the path of the hardware's folder on a node.
const GPUFolder = "/run/fakegpu"

// Config describes a lab. The zero value is a cluster without nodes in the default folders.
type Config struct {
	// Folder has the lab's state and logs, and identifies the lab. Base/lab if empty. It must be absent or empty.
	Folder string
	// Cache has the built programs. binaries.DefaultCache if empty.
	Cache string
	Nodes []NodeSpec
	// Hardware creates the GPUs. It may be nil if no node has a GPU.
	Hardware Hardware
	// Images are archives that every node imports before its kubelet starts.
	Images []string
	// Gates, RuntimeConfig, StockScheduler and Audit: see recipe.Cluster. StockScheduler is implied where RunsOwnScheduler is false.
	Gates          recipe.Gates
	RuntimeConfig  string
	StockScheduler bool
	Audit          bool
	// Progress receives one line per step. It may be nil.
	Progress io.Writer

	// kubernetes is the minor version that the environment selects.
	kubernetes string
}

// NodeSpec describes one node.
type NodeSpec struct {
	Name   string            `json:"name"`
	GPU    string            `json:"gpu,omitempty"` // a spec that Config.Hardware accepts; empty for no GPUs
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// Runtime is the container runtime: Containerd, the default, or Containerd17.
	Runtime string `json:"runtime,omitempty"`
	// Virtual makes the node a virtual machine with a stock kernel of Debian 12, systemd and cgroup v2. Its hardware's folder is inside of it, where the host
	// does not reach it: a program bin/boot in the folder is run by the node at each boot, in the place of Hardware.Reboot and Hardware.Boot.
	Virtual bool `json:"virtual,omitempty"`
	// Functions are the addresses of PCI functions that a virtual machine has, such as 0000:1b:00.0: random number generators, each on a root complex and in
	// an IOMMU group without others.
	Functions []string `json:"functions,omitempty"`
	// Files are small additional files of the node by path, such as /etc/os-release. They replace the host's file at
	// every boot. Files in a folder named bin are executable.
	Files map[string]string `json:"files,omitempty"`
}

// complete sets the defaults and validates the configuration.
func (c Config) complete() (Config, error) {
	if c.Folder == "" {
		c.Folder = filepath.Join(Base, "lab")
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	var err error
	if c.Folder, err = filepath.Abs(c.Folder); err != nil {
		return Config{}, fmt.Errorf("find the lab's folder: %w", err)
	}
	if c.Cache == "" {
		if c.Cache, err = binaries.DefaultCache(); err != nil {
			return Config{}, err
		}
	}
	if c.kubernetes, err = binaries.KubernetesVersion(); err != nil {
		return Config{}, err
	}
	c.StockScheduler = c.StockScheduler || !RunsOwnScheduler(c.kubernetes)
	return c, c.validate()
}

// virtual reports whether a node is a virtual machine.
func (c Config) virtual() bool {
	return slices.ContainsFunc(c.Nodes, func(n NodeSpec) bool { return n.Virtual })
}

func (c Config) validate() error {
	if len(c.Nodes) > address.MaxNodes {
		return fmt.Errorf("a lab has at most %d nodes, not %d", address.MaxNodes, len(c.Nodes))
	}
	seen := map[string]bool{recipe.ControlPlaneName: true}
	for _, node := range c.Nodes {
		if problems := validation.IsDNS1123Label(node.Name); len(problems) > 0 {
			return fmt.Errorf("node name %q: %s", node.Name, problems[0])
		}
		if seen[node.Name] {
			return fmt.Errorf("node name %q is used twice", node.Name)
		}
		seen[node.Name] = true
		if node.Virtual && node.Runtime != "" {
			return fmt.Errorf("node %s: a virtual machine has containerd 2, not %s", node.Name, node.Runtime)
		}
		if node.GPU != "" && c.Hardware == nil {
			return fmt.Errorf("node %s wants GPUs %q: %w", node.Name, node.GPU, errNoHardware)
		}
	}
	return nil
}

var errNoHardware = errors.New("no hardware was given to build them")
