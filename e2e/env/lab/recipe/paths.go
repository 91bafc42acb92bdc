// Package recipe defines the flags and configuration of the programs of a cluster. It has no side effects.
package recipe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// Folders inside a machine.
const (
	Binaries = "/opt/tessera-lab/bin"    // one folder per family
	Images   = "/opt/tessera-lab/images" // archives that every node imports before kubelet starts
	Config   = "/etc/kubernetes"
)

// ContainerdFolder is containerd's folder of a node, with its images.
const ContainerdFolder = "/var/lib/containerd"

// Product is the folder of the product's programs in Binaries.
const Product = "tessera"

// Files of Config that hold certificates and keys.
const (
	CACertificate      = Config + "/ca.crt"
	ServerCertificate  = Config + "/server.crt"
	ServerKey          = Config + "/server.key"
	KubeletCertificate = Config + "/kubelet-client.crt"
	KubeletKey         = Config + "/kubelet-client.key"
	// FrontProxyCertificate and FrontProxyKey identify the API server, as FrontProxyUser, to the servers of aggregated APIs.
	FrontProxyCertificate = Config + "/front-proxy-client.crt"
	FrontProxyKey         = Config + "/front-proxy-client.key"
	AccountKey            = Config + "/service-account.key"
	AccountPublicKey      = Config + "/service-account.pub"
)

// Names of services.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "tessera-scheduler"
	StockScheduler    = "kube-scheduler"
	Containerd        = "containerd"
	ImageImport       = "image-import"
	Hardware          = "hardware"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
)

// SchedulerUser is the user of the scheduler: the service account in deployments/, so that its permissions and policies
// are those of a scheduler that runs in a pod.
const SchedulerUser = "system:serviceaccount:tessera-system:tessera-scheduler"

// SchedulerConfig is the path of the scheduler's configuration.
const SchedulerConfig = Config + "/scheduler.yaml"

// APIServerPort is where the API server listens on the control plane's address.
const APIServerPort = 6443

// PauseImage is the image of every pod's sandbox. Every node has it; it is never pulled.
const PauseImage = "localhost/tessera-lab/pause:1"

// KubeconfigFile returns the path of the named service's kubeconfig.
func KubeconfigFile(service string) string { return Config + "/" + service + ".kubeconfig" }

// Server returns the URL of the API server, for the host and the nodes.
func Server(plan address.Plan) string {
	return fmt.Sprintf("https://%s:%d", plan.ControlPlane(), APIServerPort)
}

// Gates are the feature gates of a cluster, the same for every component.
type Gates map[string]bool

// flag renders the gates as a flag, or nothing if there are none.
func (g Gates) flag() []string {
	if len(g) == 0 {
		return nil
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		pairs = append(pairs, fmt.Sprintf("%s=%t", name, g[name]))
	}
	return []string{"--feature-gates=" + strings.Join(pairs, ",")}
}

// Containerd17 is the family of the older container runtime.
const Containerd17 = "containerd17"

// Path is the PATH inside every machine: the lab's programs precede the host's.
func Path() string { return pathWith("") }

// pathWith returns the PATH of a node with the given runtime, empty for the default.
func pathWith(runtime string) string {
	dirs := []string{Binaries + "/etcd", Binaries + "/" + cmp.Or(runtime, Containerd), Binaries + "/kubernetes", Binaries + "/" + Product}
	return strings.Join(append(dirs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
}

// config returns a configuration file, readable by all.
func config(path, content string) machine.File {
	return machine.File{Path: path, Content: []byte(content), Mode: 0o644}
}

// setting returns a kernel setting with its value.
func setting(path, value string) machine.File {
	return machine.File{Path: path, Content: []byte(value + "\n"), Mode: 0o644}
}

// network returns the files for name resolution: a lab has no name service.
func network(name string) []machine.File {
	return []machine.File{
		config("/etc/hostname", name+"\n"),
		config("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 "+name+"\n"),
		config("/etc/resolv.conf", "# The lab has no name service.\n"),
	}
}

// FrontProxyUser is the name of the API server to the servers of aggregated APIs.
const FrontProxyUser = "front-proxy-client"
