package recipe

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// Node is one worker node.
type Node struct {
	Name    string
	Address netip.Addr
	Pods    netip.Prefix
	Labels  map[string]string
	Taints  []corev1.Taint
	// Runtime is the family of the container runtime's programs: Containerd, the default, or Containerd17.
	Runtime string
	// CNI is the folder with the host's CNI plugins.
	CNI string
	// Images are the files in the folder Images that the node imports at boot. A virtual machine has the images in ContainerdFolder.
	Images []string
	// Virtual is set for a virtual machine: its kernel and control groups are its own, and it is configured like a production node.
	Virtual bool
	// Hardware is the path of a program that must have ended before kubelet starts, after each boot. Empty for none.
	Hardware string
}

const (
	containerdConfig = "/etc/containerd/config.toml"
	containerdSocket = "/run/containerd/containerd.sock"
	kubeletConfig    = Config + "/kubelet.yaml"
	proxyConfig      = Config + "/kube-proxy.yaml"
)

// Persistent lists the folders of a node that need a plain file system instead of the machine's overlay: container
// layers are overlays themselves, and volumes are bound from kubelet's folder.
func Persistent() []string {
	return []string{"/var/lib/kubelet", ContainerdFolder, "/var/lib/cni", "/var/log/pods"}
}

// Worker returns the machine of a node: containerd, kubelet and kube-proxy. The caller adds certificates and
// kubeconfigs.
func Worker(cluster Cluster, node Node) (machine.Spec, error) {
	kubelet, err := kubeletFile(cluster, node)
	if err != nil {
		return machine.Spec{}, fmt.Errorf("render the kubelet configuration of %s: %w", node.Name, err)
	}
	network := append(network(node.Name),
		config(containerdConfig, containerdFile(node)),
		config("/etc/cni/net.d/10-lab.conflist", cniFile(node)),
		config(proxyConfig, proxyFile(cluster, node)),
		kubelet,
	)
	spec := machine.Spec{
		Name:     node.Name,
		Files:    network,
		Settings: []machine.File{setting("/proc/sys/net/ipv4/ip_forward", "1")},
		Path:     pathWith(node.Runtime),
		Services: []machine.Service{containerd()},
	}
	service := kubeletService(node)
	if !node.Virtual {
		spec.Masks = kernelMasks()
		spec.Services = append(spec.Services, imageImport(node))
		service.Needs = []string{ImageImport}
	}
	spec.Services = append(spec.Services, proxy())
	if node.Hardware != "" {
		spec.Services = append(spec.Services, machine.Service{Name: Hardware, Args: []string{node.Hardware}, Ready: machine.Probe{Exit: true}})
		service.Needs = append(service.Needs, Hardware)
	}
	spec.Services = append(spec.Services, service)
	return spec, nil
}

// kernelMasks covers the settings that kubelet requires and writes: they apply to the whole host, which the lab must
// not change.
func kernelMasks() []machine.File {
	return []machine.File{
		setting("/proc/sys/vm/overcommit_memory", "1"),
		setting("/proc/sys/vm/panic_on_oom", "0"),
		setting("/proc/sys/kernel/panic", "10"),
		setting("/proc/sys/kernel/panic_on_oops", "1"),
		setting("/proc/sys/kernel/keys/root_maxkeys", "1000000"),
		setting("/proc/sys/kernel/keys/root_maxbytes", "25000000"),
	}
}

// containerd has the threads of a node with 16 processors: with two, the goroutine that has opened a container's FIFO waits for its turn while the lab is
// busy, and containerd loses the output of a container that ends meanwhile.
func containerd() machine.Service {
	return machine.Service{
		Name:  Containerd,
		Args:  []string{"env", "GOMAXPROCS=16", "containerd", "--config=" + containerdConfig},
		Ready: machine.Probe{Socket: containerdSocket},
	}
}

// registries is the folder with the addresses of registries, as packages of containerd configure it.
const registries = "/etc/containerd/certs.d"

// containerdFile returns containerd's configuration. CDI is enabled by default. A virtual machine has that of a production node with systemd: runc, and
// crun for the RuntimeClass of this name. Elsewhere, restrict_oom_score_adj lets containers start where the lab lacks
// CAP_SYS_RESOURCE, and AppArmor is disabled, since a profile would be loaded into the host's kernel and stay there.
func containerdFile(node Node) string {
	if node.Runtime == Containerd17 {
		return containerd17File(node)
	}
	text := fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = %q
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%q]
`, ContainerdFolder, containerdSocket, PauseImage, registries, node.CNI)
	if !node.Virtual {
		return text + `[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
`
	}
	for _, runtime := range []string{"runc", "crun"} {
		text += fmt.Sprintf(`[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s.options]
    BinaryName = %q
    SystemdCgroup = true
`, runtime, runtime, runtime)
	}
	return text
}

// containerd17File returns the equivalent configuration for version 1.7, which reads CDI specs only if configured.
func containerd17File(node Node) string {
	return fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
`, ContainerdFolder, containerdSocket, PauseImage, node.CNI)
}

// imageImport imports the required images of a cluster before kubelet starts.
func imageImport(node Node) machine.Service {
	script := []string{"set -e"}
	for _, image := range node.Images {
		script = append(script, fmt.Sprintf("ctr --namespace k8s.io images import '%s/%s'", Images, image))
	}
	return machine.Service{
		Name:  ImageImport,
		Args:  []string{"sh", "-c", strings.Join(script, "\n")},
		Needs: []string{Containerd},
		Ready: machine.Probe{Exit: true},
	}
}

// cniFile gives each pod a point-to-point link, an address of the node's pod network, and a route through the node's
// address. The default route of every node is the control plane, which has routes to all pods, and no pod has a port of its host: masquerading and the plugin
// portmap would cost each pod 18 runs of iptables.
func cniFile(node Node) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "lab", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/var/lib/cni",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]}}
]}
`, node.Pods)
}

func proxy() machine.Service {
	return machine.Service{
		Name:  Proxy,
		Args:  []string{"kube-proxy", "--config=" + proxyConfig},
		Ready: machine.Probe{URL: "http://127.0.0.1:10256/livez"},
	}
}

func proxyFile(cluster Cluster, node Node) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %s}
mode: nftables
hostnameOverride: %s
clusterCIDR: %s
conntrack: {maxPerCore: 0} # the limit belongs to the host
`, KubeconfigFile(Proxy), node.Name, cluster.Plan.Network)
}

func kubeletService(node Node) machine.Service {
	args := []string{
		"kubelet", "--config=" + kubeletConfig, "--kubeconfig=" + KubeconfigFile(Kubelet),
		"--hostname-override=" + node.Name, "--node-ip=" + node.Address.String(), "--v=2",
	}
	if len(node.Labels) > 0 {
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
			pairs = append(pairs, key+"="+node.Labels[key])
		}
		args = append(args, "--node-labels="+strings.Join(pairs, ","))
	}
	return machine.Service{
		Name:  Kubelet,
		Args:  args,
		Needs: []string{Containerd},
		Ready: machine.Probe{URL: "http://127.0.0.1:10248/healthz"},
	}
}

// kubeletFile returns kubelet's configuration. A node accepts only clients that the API server authenticates and
// authorizes.
func kubeletFile(cluster Cluster, node Node) (machine.File, error) {
	settings := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": CACertificate},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              ServerCertificate,
		"tlsPrivateKeyFile":        ServerKey,
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		"syncFrequency":             "10s", // retry interval of a pod whose claim could not be prepared; the default is a minute
		"nodeStatusUpdateFrequency": "1s",  // a node reports readiness within a second, instead of ten
		"registerWithTaints":        node.Taints,
		"featureGates":              cluster.Gates,
	}
	if node.Virtual {
		settings["cgroupDriver"] = "systemd"
	} else {
		settings["cgroupDriver"] = "cgroupfs"
		settings["cgroupsPerQOS"] = cluster.PodControlGroups
		settings["enforceNodeAllocatable"] = []string{"none"}
		settings["failCgroupV1"] = false
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	return machine.File{Path: kubeletConfig, Content: text, Mode: 0o644}, err
}
