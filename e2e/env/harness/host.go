package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Driver is the name of the DRA driver.
const Driver = v1alpha1.DriverName

// Host is a host made of files, with a Node of the same name on the API server.
type Host struct {
	Name string
	// Dir has everything; short, as the names of sockets have at most 107 characters.
	Dir string
	// Records is where kubelet keeps its plugins' data, on a file system of the caller's choice.
	Records string
	// Kubeconfig is how agents find the API server.
	Kubeconfig string
	// Hardware is the machine as the catalogue has it.
	Hardware gpu.Node
	plane    *Plane
}

// NewHost makes the folders of a host in dir, which exists and is the caller's to remove, and its Node.
// The machine is one of the catalogue; its files are laid down by Install.
func NewHost(ctx context.Context, plane *Plane, dir, name, machine string) (*Host, error) {
	m, err := gputest.FindMachine(machine)
	if err != nil {
		return nil, err
	}
	h := &Host{Name: name, Dir: dir, Records: filepath.Join(dir, "p"), Kubeconfig: plane.Kubeconfig, plane: plane}
	if h.Hardware, err = m.Node(name); err != nil {
		return nil, err
	}
	for _, folder := range []string{h.Data(), h.Registry(), h.CDI()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	if err := h.Configure(""); err != nil {
		return nil, err
	}
	_, err = plane.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return h, err
}

// Install lays down the files of the machine.
func (h *Host) Install(ctx context.Context, machine string) error {
	return fakegpu.Install(ctx, h.Machine(), fakegpu.Spec{Node: h.Name, Machine: machine})
}

// Machine is the folder of the fake machine.
func (h *Host) Machine() string { return filepath.Join(h.Dir, "m") }

// Data is the agent's own folder.
func (h *Host) Data() string { return filepath.Join(h.Records, Driver) }

// Registry is where kubelet looks for plugins.
func (h *Host) Registry() string { return filepath.Join(h.Dir, "r") }

// CDI is where container runtimes look for specs.
func (h *Host) CDI() string { return filepath.Join(h.Dir, "cdi") }

// PodResources is the socket where kubelet would tell which pods use which claims.
func (h *Host) PodResources() string { return filepath.Join(h.Dir, "pods.sock") }

// Log has the output of every agent of the host.
func (h *Host) Log() string { return filepath.Join(h.Dir, "agent.log") }

// Config is the path of the NodeConfig.
func (h *Host) Config() string { return filepath.Join(h.Dir, "node.yaml") }

// Configure writes the NodeConfig: the roots, and more lines.
func (h *Host) Configure(more string) error {
	m := h.Machine()
	text := fmt.Sprintf("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: /, proc: %s, sys: %s, driver: %s, dev: %s}\n%s",
		fakegpu.ProcRoot(m), fakegpu.SysRoot(m), fakegpu.DriverRoot(m), fakegpu.DevRoot(m), more)
	return os.WriteFile(h.Config(), []byte(text), 0o600)
}

// KeepRecords moves kubelet's folder of plugins below the folder. No agent runs yet.
func (h *Host) KeepRecords(folder string) error {
	h.Records = filepath.Join(folder, "p")
	return os.MkdirAll(h.Data(), 0o755)
}
