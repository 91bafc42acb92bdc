// Package lab runs a real Kubernetes cluster on one machine, for tests: real etcd, API server, controllers, scheduler, and nodes with real kubelets,
// containerd and runc. Only the GPU is somebody else's fake. Nodes can be killed, rebooted and cut off.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// Base is the folder below which labs stand unless told otherwise.
const Base = "/run/tessera-lab"

// Hardware builds the GPUs of a node. The lab gives each node with a GPU spec a folder that outlives reboots, on a file system that takes device
// nodes; the node sees it at GPUFolder, the host at Node.GPUFolder.
type Hardware interface {
	// Install fills the empty folder of the named node as the spec says, once in the life of a node, before its first boot.
	Install(ctx context.Context, node, spec, folder string) error
	// Reboot does to the hardware what a power cycle does. The node is down meanwhile.
	Reboot(ctx context.Context, folder string) error
	// Boot tells the hardware, before each boot of the node, the boot's id: the one that kubelet will report.
	Boot(ctx context.Context, folder, bootID string) error
}

// GPUFolder is where a node finds the hardware's folder.
const GPUFolder = "/run/fakegpu"

// Config describes a lab. The zero value is a cluster of no nodes in the default places.
type Config struct {
	// Folder holds the lab's state and logs, and names it; Base/lab when empty. It must be absent or empty.
	Folder string
	// Cache keeps built programs; binaries.DefaultCache when empty.
	Cache string
	Nodes []NodeSpec
	// Hardware builds the GPUs; nil when no node has any.
	Hardware Hardware
	// Images are archives that every node has before its kubelet starts.
	Images []string
	// Gates, RuntimeConfig and Audit: see recipe.Cluster.
	Gates         recipe.Gates
	RuntimeConfig string
	Audit         bool
	// Progress is told what is being done, a line at a time; nil means nobody is.
	Progress io.Writer
}

// NodeSpec describes one node.
type NodeSpec struct {
	Name   string            `json:"name"`
	GPU    string            `json:"gpu,omitempty"` // a spec that Config.Hardware understands; none when empty
	Labels map[string]string `json:"labels,omitempty"`
	Taints []corev1.Taint    `json:"taints,omitempty"`
	// Runtime is the container runtime: Containerd, the default, or Containerd17.
	Runtime string `json:"runtime,omitempty"`
	// Files are small files of the node's own, by path, such as /etc/os-release. They are written at every boot, over what the host has there;
	// those in a folder named bin are programs.
	Files map[string]string `json:"files,omitempty"`
}

// complete fills in the defaults and checks the rest.
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
	return c, c.validate()
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
		if node.GPU != "" && c.Hardware == nil {
			return fmt.Errorf("node %s wants GPUs %q: %w", node.Name, node.GPU, errNoHardware)
		}
	}
	return nil
}

var errNoHardware = errors.New("no hardware was given to build them")
