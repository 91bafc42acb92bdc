// Package recipe says how the programs of a cluster are started: their flags and their configuration. It is pure.
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

// Product is the folder of the product's programs in Binaries.
const Product = "tessera"

// Files of Config that hold certificates and keys.
const (
	CACertificate      = Config + "/ca.crt"
	ServerCertificate  = Config + "/server.crt"
	ServerKey          = Config + "/server.key"
	KubeletCertificate = Config + "/kubelet-client.crt"
	KubeletKey         = Config + "/kubelet-client.key"
	AccountKey         = Config + "/service-account.key"
	AccountPublicKey   = Config + "/service-account.pub"
)

// Names of services.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "tessera-scheduler"
	Containerd        = "containerd"
	ImageImport       = "image-import"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
)

// SchedulerUser is who the scheduler is: its service account, as deployments/ names it, so that rights and
// policies are those of a scheduler that runs in a pod.
const SchedulerUser = "system:serviceaccount:tessera-system:tessera-scheduler"

// SchedulerConfig is where the scheduler finds its configuration.
const SchedulerConfig = Config + "/scheduler.yaml"

// APIServerPort is where the API server listens on the control plane's address.
const APIServerPort = 6443

// PauseImage is the image of every pod's sandbox. It is part of every node, never pulled.
const PauseImage = "localhost/tessera-lab/pause:1"

// KubeconfigFile is where the named service finds its kubeconfig.
func KubeconfigFile(service string) string { return Config + "/" + service + ".kubeconfig" }

// Server is the URL of the API server, from the host and from nodes alike.
func Server(plan address.Plan) string {
	return fmt.Sprintf("https://%s:%d", plan.ControlPlane(), APIServerPort)
}

// Gates are the feature gates of a cluster, the same for every component.
type Gates map[string]bool

// flag renders the gates as a flag, or nothing when there are none.
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

// Path is the PATH inside every machine: the lab's own programs before the host's.
func Path() string { return pathWith("") }

// pathWith is that of a node with another runtime than the usual one.
func pathWith(runtime string) string {
	dirs := []string{Binaries + "/etcd", Binaries + "/" + cmp.Or(runtime, Containerd), Binaries + "/kubernetes", Binaries + "/" + Product}
	return strings.Join(append(dirs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
}

// config is a file of configuration, readable by all.
func config(path, content string) machine.File {
	return machine.File{Path: path, Content: []byte(content), Mode: 0o644}
}

// setting is a kernel setting with its value.
func setting(path, value string) machine.File {
	return machine.File{Path: path, Content: []byte(value + "\n"), Mode: 0o644}
}

// network lists the files by which programs find names: there is no name service in a lab.
func network(name string) []machine.File {
	return []machine.File{
		config("/etc/hostname", name+"\n"),
		config("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 "+name+"\n"),
		config("/etc/resolv.conf", "# The lab has no name service.\n"),
	}
}
