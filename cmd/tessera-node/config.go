package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/host/modprobe"
	"github.com/tessera-gpu/tessera/internal/host/smi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/devnode"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/server"
)

// config is the configuration of the agent. It does not change while the agent runs.
type config struct {
	// NodeConfig is the content of the file.
	v1alpha1.NodeConfig
	// file is the path of the NodeConfig file; empty means the defaults.
	file string
	// node is the name of the Node, podUID the UID of the agent's pod. Without a pod, a second agent does not overlap with this
	// one.
	node, podUID string
	// namespace and pod identify the agent's pod, the template of the pods of MPS daemons.
	namespace, pod string
	// mps is the parent of the folders of MPS daemons.
	mps        string
	kubeconfig string
	// gpuNode enables the controller of the node's GPUNode, for the installer.
	gpuNode bool
	// plugins is the parent folder of the driver's sockets, records and locks. registry is kubelet's folder of plugin
	// registrations, cdi the container runtime's folder of CDI specs.
	plugins, registry, cdi string
	// podResources is kubelet's pod resources socket, kubeletState the host's path of kubelet's file of prepared claims.
	podResources, kubeletState string
	// address is the TCP address of the endpoint for metrics, socket the path of the one for the commands ready, live and metrics. profiles is the TCP address
	// of pprof.
	address, socket, profiles string
	// hook is the path of the CDI hook's program in the image.
	hook string
}

func defaults() config {
	return config{
		node: os.Getenv("NODE_NAME"), podUID: os.Getenv("POD_UID"),
		namespace: os.Getenv("POD_NAMESPACE"), pod: os.Getenv("POD_NAME"), mps: mpsFolder,
		plugins: "/var/lib/kubelet/plugins", registry: "/var/lib/kubelet/plugins_registry", cdi: "/var/run/cdi",
		podResources: "/var/lib/kubelet/pod-resources/kubelet.sock", kubeletState: "/var/lib/kubelet/dra_manager_state",
		address: ":8080", profiles: off, socket: "/run/tessera-node.sock", hook: "/usr/bin/tessera-hook",
	}
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.file, "config", c.file, "path of a NodeConfig file")
	flags.StringVar(&c.node, "node-name", c.node, "name of the Kubernetes node, by default $NODE_NAME")
	flags.StringVar(&c.podUID, "pod-uid", c.podUID, "UID of the agent's pod, by default $POD_UID")
	flags.StringVar(&c.namespace, "pod-namespace", c.namespace, "namespace of the agent's pod, by default $POD_NAMESPACE")
	flags.StringVar(&c.pod, "pod-name", c.pod, "name of the agent's pod, by default $POD_NAME; it is the template of the pods of MPS daemons")
	flags.StringVar(&c.mps, "mps-dir", c.mps, "folder of the MPS daemons' folders, in memory, under the same path as on the host")
	flags.StringVar(&c.kubeconfig, "kubeconfig", c.kubeconfig, "path of a kubeconfig; without one the pod's service account is used")
	flags.BoolVar(&c.gpuNode, "gpunode", c.gpuNode,
		"report the node's state in the GPUNode of the node, and prepare no claims while its spec has the GPUs out of service")
	flags.StringVar(&c.plugins, "plugin-dir", c.plugins, "kubelet's folder of plugins, under the same path as on the host")
	flags.StringVar(&c.registry, "registry-dir", c.registry, "kubelet's folder of plugin registrations, under the same path as on the host")
	flags.StringVar(&c.cdi, "cdi-dir", c.cdi, "folder of CDI specs that the container runtime reads")
	flags.StringVar(&c.podResources, "pod-resources", c.podResources, "kubelet's pod resources socket, from which the agent gets the pods of claims")
	flags.StringVar(&c.kubeletState, "kubelet-state", c.kubeletState, "path on the host of the file in which kubelet keeps the claims that it has prepared")
	flags.StringVar(&c.profiles, "pprof-address", c.profiles, "address of net/http/pprof, which requires no token: use 127.0.0.1:6060 and kubectl port-forward; 0 disables it")
	flags.StringVar(&c.address, "metrics-address", c.address, "address of the metrics: host:port; 0 disables it")
	flags.StringVar(&c.socket, "socket", c.socket, "path of the socket on which the agent answers the commands ready, live and metrics")
	flags.StringVar(&c.hook, "hook", c.hook, "program of the CDI hooks, which the agent installs on the host")
}

// load reads and validates the configuration.
func (c config) load() (config, error) {
	c.NodeConfig = v1alpha1.Default()
	if c.file != "" {
		text, err := os.ReadFile(c.file)
		if err != nil {
			return config{}, fmt.Errorf("read the configuration: %w", err)
		}
		if c.NodeConfig, err = v1alpha1.Load(text); err != nil {
			return config{}, fmt.Errorf("read the configuration %s: %w", c.file, err)
		}
	}
	var errs []error
	for _, folder := range []struct{ flag, path string }{
		{"plugin-dir", c.plugins}, {"registry-dir", c.registry}, {"cdi-dir", c.cdi}, {"mps-dir", c.mps},
	} {
		if !filepath.IsAbs(folder.path) {
			errs = append(errs, fmt.Errorf("--%s %q: must be an absolute path", folder.flag, folder.path))
		}
	}
	return c, errors.Join(errs...)
}

// data returns the folder of the driver's files on the node.
func (c config) data() string { return filepath.Join(c.plugins, c.DriverName) }

// roots returns the paths at which the host's file systems are mounted.
func (c config) roots() driverroot.Roots {
	return driverroot.Roots{Host: c.Roots.Host, Proc: c.Roots.Proc, Sys: c.Roots.Sys, Driver: c.Roots.Driver, Dev: c.Roots.Dev}
}

// cgroups returns the folder of the host's control groups of version 2. In a pod, /sys/fs/cgroup can have the pod's own group only.
func (c config) cgroups() string {
	if c.Roots.Sys == "/sys" {
		return filepath.Join(c.Roots.Host, "sys/fs/cgroup")
	}
	return filepath.Join(c.Roots.Sys, "fs/cgroup")
}

// limits returns the folder of the sockets on which agents limit GPU memory.
func (c config) limits() string { return filepath.Join(c.data(), limitsFolder) }

// consumers returns the reader of the claims that kubelet has.
func (c config) consumers() server.Kubelet {
	return server.Kubelet{Socket: c.podResources, State: filepath.Join(c.Roots.Host, c.kubeletState)}
}

// devRoot returns the path of this process whose subfolder dev is the host's /dev, which is this process's own /dev too: its pod mounts it there.
func (c config) devRoot() string { return cmp.Or(c.Roots.Dev, c.Roots.Host) }

// nodes returns the maker of device nodes for this process and its programs. A process has one, whose lock excludes concurrent calls.
func (c config) nodes() *devnode.Maker {
	return devnode.New(devnode.Config{
		Roots: c.roots(), Dev: filepath.Join(c.devRoot(), "dev"),
		Load: func(ctx context.Context, module string) error {
			roots, err := c.roots().ModuleRoots()
			if err != nil {
				return err
			}
			return modprobe.Load(ctx, module, roots...)
		},
	})
}

// nvidiaSMI returns the path of nvidia-smi of the current driver. The daemons to which it talks are reachable.
func (c config) nvidiaSMI() (smi.Program, error) {
	if err := linkDaemons(runFolder, c.roots().DaemonFolder); err != nil {
		return smi.Program{}, err
	}
	path, err := c.roots().Program("nvidia-smi")
	if err != nil {
		return smi.Program{}, err
	}
	library, err := c.roots().Library()
	return smi.Program{Path: path, Library: library}, err
}

// rules returns the rules that judge signals.
func (c config) rules() gpu.Rules { return c.Health.Rules() }
