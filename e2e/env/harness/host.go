package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Driver is the name of the DRA driver.
const Driver = v1alpha1.DriverName

// Host is a file-based host with a Node of the same name on the API server.
type Host struct {
	Name string
	// Dir is the root folder. It must be short, since paths of sockets have at most 107 characters.
	Dir string
	// Records is the folder of kubelet's plugin data, on a file system of the caller's choice.
	Records string
	// Kubeconfig is the path of the agents' kubeconfig.
	Kubeconfig string
	// Hardware are the GPUs: those of the machine in the catalog, or real ones.
	Hardware gpu.Node
	// Roots are where agents of the host find it.
	Roots v1alpha1.Roots
	plane *Plane
}

// NewHost creates the folders of a host in dir, which must exist and which the caller removes, and its Node. machine is
// a name in the catalog; Install creates its files.
func NewHost(ctx context.Context, plane *Plane, dir, name, machine string) (*Host, error) {
	m, err := catalog.FindMachine(machine)
	if err != nil {
		return nil, err
	}
	hardware, err := m.Node(name)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(dir, machineFolder)
	return NewHostOf(ctx, plane, dir, hardware, v1alpha1.Roots{
		Host: "/", Proc: fakegpu.ProcRoot(files), Sys: fakegpu.SysRoot(files), Driver: fakegpu.DriverRoot(files), Dev: fakegpu.DevRoot(files),
	})
}

// machineFolder is the folder of the files of a fake machine.
const machineFolder = "m"

// NewHostOf is NewHost for other hardware, with the name of its node.
func NewHostOf(ctx context.Context, plane *Plane, dir string, hardware gpu.Node, roots v1alpha1.Roots) (*Host, error) {
	h := &Host{
		Name: hardware.Name, Dir: dir, Records: filepath.Join(dir, "p"), Kubeconfig: plane.Kubeconfig, Hardware: hardware, Roots: roots, plane: plane,
	}
	for _, folder := range []string{h.Data(), h.Registry(), h.CDI()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := h.Configure(""); err != nil {
		return nil, err
	}
	_, err := plane.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Name}}, metav1.CreateOptions{})
	return h, err
}

// Install creates the files of the machine.
func (h *Host) Install(ctx context.Context, machine string) error {
	return fakegpu.Install(ctx, h.Machine(), fakegpu.Spec{Node: h.Name, Machine: machine})
}

// Machine returns the folder of the fake machine.
func (h *Host) Machine() string { return filepath.Join(h.Dir, machineFolder) }

// deviceNodes returns the variable that makes the fake driver open device nodes in the machine's folder, as one opens those in /dev. The folder is
// empty until the agent makes them.
func (h *Host) deviceNodes() string { return "FAKE_NVML_DEV=" + filepath.Join(h.Roots.Dev, "dev") }

// Data returns the agent's data folder.
func (h *Host) Data() string { return filepath.Join(h.Records, Driver) }

// Registry returns the folder in which kubelet finds plugins.
func (h *Host) Registry() string { return filepath.Join(h.Dir, "r") }

// CDI returns the folder in which container runtimes find CDI specs.
func (h *Host) CDI() string { return filepath.Join(h.Dir, "cdi") }

// PodResources returns the socket of kubelet's podresources API.
func (h *Host) PodResources() string { return filepath.Join(h.Dir, "pods.sock") }

// KubeletState returns the file in which kubelet keeps the claims that it has prepared.
func (h *Host) KubeletState() string { return filepath.Join(h.Dir, "dra_manager_state") }

// Log returns the log file of all agents of the host.
func (h *Host) Log() string { return filepath.Join(h.Dir, "agent.log") }

// Config returns the path of the NodeConfig.
func (h *Host) Config() string { return filepath.Join(h.Dir, "node.yaml") }

// Configure writes the NodeConfig: the roots and additional lines.
func (h *Host) Configure(more string) error {
	text := fmt.Sprintf("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: %s, proc: %s, sys: %s, driver: %q, dev: %q}\n%s",
		h.Roots.Host, h.Roots.Proc, h.Roots.Sys, h.Roots.Driver, h.Roots.Dev, more)
	return os.WriteFile(h.Config(), []byte(text), 0o600)
}

// KeepRecords moves kubelet's plugin folder below the folder. It must be called before an agent is started.
func (h *Host) KeepRecords(folder string) error {
	h.Records = filepath.Join(folder, "p")
	return os.MkdirAll(h.Data(), 0o755)
}
