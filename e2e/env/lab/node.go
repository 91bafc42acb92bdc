package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// Services of the machines, for the methods of Computer.
const (
	Kubelet           = recipe.Kubelet
	Containerd        = recipe.Containerd
	Proxy             = recipe.Proxy
	Etcd              = recipe.Etcd
	APIServer         = recipe.APIServer
	ControllerManager = recipe.ControllerManager
	Scheduler         = recipe.Scheduler
	KubeScheduler     = recipe.StockScheduler
)

// Containerd17 is the alternative container runtime of a node: the newest version that does not read CDI specs by
// default.
const Containerd17 = recipe.Containerd17

// Computer is a machine of the lab: a node, or the control plane.
type Computer struct {
	name    string
	machine computer
}

// computer is how the lab operates a machine: machine.Machine, or machine.Virtual.
type computer interface {
	Boot(ctx context.Context, guest string, spec machine.Spec) error
	Wait(ctx context.Context) error
	Status(ctx context.Context) ([]machine.ServiceStatus, error)
	Control(ctx context.Context, operation machine.Operation, service string) error
	Command(ctx context.Context, args ...string) (*exec.Cmd, error)
	Running() (bool, error)
	Shutdown(ctx context.Context) error
	Kill(ctx context.Context) error
	Disk() string
	Logs() string
}

// Name returns the host name.
func (c *Computer) Name() string { return c.name }

// Logs returns the host's path of the folder with one log per service.
func (c *Computer) Logs() string { return c.machine.Logs() }

// Services returns the state of the services. It returns machine.ErrDown if the computer does not run.
func (c *Computer) Services(ctx context.Context) ([]machine.ServiceStatus, error) {
	return c.machine.Status(ctx)
}

// StopService stops a service until StartService. Its child processes keep running: containers outlive their kubelet
// and containerd.
func (c *Computer) StopService(ctx context.Context, service string) error {
	return c.control(ctx, machine.OpStop, service)
}

// StartService starts a stopped service and returns when it is ready.
func (c *Computer) StartService(ctx context.Context, service string) error {
	return c.control(ctx, machine.OpStart, service)
}

// RestartService stops and starts a service.
func (c *Computer) RestartService(ctx context.Context, service string) error {
	if err := c.StopService(ctx, service); err != nil {
		return err
	}
	return c.StartService(ctx, service)
}

// KillService kills a service with SIGKILL and returns when it has exited. The machine restarts it.
func (c *Computer) KillService(ctx context.Context, service string) error {
	return c.control(ctx, machine.OpKill, service)
}

// Ready returns when every service that was not stopped is ready.
func (c *Computer) Ready(ctx context.Context) error { return c.machine.Wait(ctx) }

// Command prepares a program to run inside the computer, as root, in all its namespaces.
func (c *Computer) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	cmd, err := c.machine.Command(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", args[0], c.name, err)
	}
	cmd.Env = []string{"PATH=" + recipe.Path(), "HOME=/root"}
	return cmd, nil
}

// Exec runs a program inside the computer and returns its standard output. An error includes the standard error.
func (c *Computer) Exec(ctx context.Context, args ...string) ([]byte, error) {
	cmd, err := c.Command(ctx, args...)
	if err != nil {
		return nil, err
	}
	output, err := machine.Output(cmd)
	if err != nil {
		err = fmt.Errorf("run %s on %s: %w", args[0], c.name, err)
	}
	return output, err
}

func (c *Computer) control(ctx context.Context, op machine.Operation, service string) error {
	if err := c.machine.Control(ctx, op, service); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// Node is a worker node. Tests control its power and its network link.
type Node struct {
	Computer
	lab   *Lab
	index int
}

// Node returns the node with the name.
func (l *Lab) Node(name string) (*Node, error) {
	index, err := l.state.node(name)
	if err != nil {
		return nil, err
	}
	return &Node{Computer: Computer{name: name, machine: l.computer(index)}, lab: l, index: index}, nil
}

// Nodes returns all nodes in the order of the configuration.
func (l *Lab) Nodes() []*Node {
	var nodes []*Node
	for i, spec := range l.state.Nodes {
		nodes = append(nodes, &Node{Computer: Computer{name: spec.Name, machine: l.computer(i)}, lab: l, index: i})
	}
	return nodes
}

// ControlPlane returns the machine with etcd, API server, controllers and scheduler.
func (l *Lab) ControlPlane() *Computer {
	return &Computer{name: recipe.ControlPlaneName, machine: l.controlPlane()}
}

// GPU returns the spec of the node's GPUs, empty if it has none.
func (n *Node) GPU() string { return n.lab.state.Nodes[n.index].GPU }

// GPUFolder returns the host's path of the folder that the node sees as GPUFolder. It exists while the node is down. A virtual node has a copy of it, which the
// host does not see.
func (n *Node) GPUFolder() string { return filepath.Join(n.machine.Disk(), gpuDisk) }

// Kernels returns the releases of the kernels that a virtual node has; the first is its default.
func (n *Node) Kernels() ([]string, error) {
	d, err := n.lab.virtual(n.index).Base()
	if err != nil {
		return nil, fmt.Errorf("find the kernels of %s: %w", n.name, err)
	}
	return d.Kernels()
}

// SetKernel selects the kernel of the next boots of a virtual node.
func (n *Node) SetKernel(release string) error { return n.lab.virtual(n.index).SetKernel(release) }

// EnableSecureBoot makes UEFI with secure boot the firmware of the next boots of a virtual node, DisableSecureBoot a BIOS.
func (n *Node) EnableSecureBoot() error { return n.lab.virtual(n.index).EnableSecureBoot() }

// DisableSecureBoot reverts EnableSecureBoot.
func (n *Node) DisableSecureBoot() error { return n.lab.virtual(n.index).DisableSecureBoot() }

// Kill simulates a power loss: every process ends immediately, unsaved data is lost. The disk persists.
func (n *Node) Kill(ctx context.Context) error { return n.machine.Kill(ctx) }

// Stop shuts the node down: services stop in order, then all other processes.
func (n *Node) Stop(ctx context.Context) error { return n.machine.Shutdown(ctx) }

// Start boots a node that is down, with a new boot ID, empty /run and /dev, the same disk, and power-cycled hardware.
// It returns when the node is Ready.
func (n *Node) Start(ctx context.Context) error {
	if running, err := n.machine.Running(); err != nil || running {
		return err
	}
	if n.GPU() != "" && !n.lab.state.Nodes[n.index].Virtual {
		if n.lab.hardware == nil {
			return fmt.Errorf("start %s: %w", n.name, errNoHardware)
		}
		if err := n.lab.hardware.Reboot(ctx, n.GPUFolder()); err != nil {
			return fmt.Errorf("reset the GPUs of %s: %w", n.name, err)
		}
	}
	return n.lab.boot(ctx, n.index)
}

// Reboot stops and starts the node.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Partition disconnects the node from the network until Heal or the next boot. Processes on the node keep running.
func (n *Node) Partition(ctx context.Context) error { return n.setCable(ctx, "down") }

// Heal reconnects the node.
func (n *Node) Heal(ctx context.Context) error { return n.setCable(ctx, "up") }

func (n *Node) setCable(ctx context.Context, state string) error {
	command := fmt.Sprintf("link set %s %s", bridgePort(n.index), state)
	if err := n.lab.controlPlane().Network().IP(ctx, command); err != nil {
		return fmt.Errorf("set the cable of %s %s: %w", n.name, state, err)
	}
	return nil
}
