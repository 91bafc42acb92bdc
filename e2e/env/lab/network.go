package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/netns"
)

const (
	bridge     = "lab0" // in the control plane's network namespace
	hostPort   = "host" // the bridge's port to the host
	nodeDevice = "eth0"
)

// bridgePort returns the name of the bridge's port to node i.
func bridgePort(i int) string { return fmt.Sprintf("node%d", i) }

// layNetwork chooses free networks, records the choice, and creates the control plane's namespace, the bridge in it,
// and the link to the host. Labs that start at the same time are serialized, so that each finds the choice of the
// others in the host's routes.
func (l *Lab) layNetwork(ctx context.Context) error {
	unlock, err := lockHostNetwork()
	if err != nil {
		return err
	}
	defer unlock()
	host := netns.Namespace("")
	routes, err := host.Output(ctx, "-json -4 route show table all")
	if err != nil {
		return fmt.Errorf("read the host's routes: %w", err)
	}
	taken, err := address.Taken(routes)
	if err != nil {
		return err
	}
	if l.state.Plan, err = address.Choose(taken); err != nil {
		return err
	}
	if err := l.state.save(l.folder); err != nil {
		return err
	}
	inside, err := netns.Make(string(l.controlPlane().Network()))
	if err != nil {
		return err
	}
	plan, link := l.state.Plan, l.state.hostLink()
	return runIP(ctx,
		in(inside, "link set lo up"),
		in(inside, "link add %s address %s type bridge", bridge, address.MAC(plan.ControlPlane())),
		in(inside, "address add %s/%d dev %s", plan.ControlPlane(), plan.Nodes().Bits(), bridge),
		in(inside, "link set %s up", bridge),
		in(host, "link add %s type veth peer name %s netns %s", link, hostPort, inside),
		in(inside, "link set %s master %s up", hostPort, bridge),
		in(host, "address add %s/%d dev %s", plan.Host(), plan.Nodes().Bits(), link),
		in(host, "link set %s up", link),
	)
}

// connect gives node i a new link to the bridge.
func (l *Lab) connect(ctx context.Context, i int) error {
	if l.state.Nodes[i].Virtual {
		return l.connectVirtual(ctx, i)
	}
	return l.connectNamespace(ctx, i)
}

// connectVirtual creates the end of a virtual machine's cable.
func (l *Lab) connectVirtual(ctx context.Context, i int) error {
	plan, inside := l.state.Plan, l.controlPlane().Network()
	if err := dropLink(ctx, inside, bridgePort(i)); err != nil {
		return err
	}
	return runIP(ctx,
		in(inside, "tuntap add dev %s mode tap", bridgePort(i)),
		in(inside, "link set %s master %s up", bridgePort(i), bridge),
		in(inside, "route replace %s via %s", plan.Pods(i), plan.Node(i)),
	)
}

// connectNamespace gives node i a new network namespace. The namespace of the previous boot is removed.
func (l *Lab) connectNamespace(ctx context.Context, i int) error {
	name := l.state.Nodes[i].Name
	namespace, plan, inside := l.machine(name).Network(), l.state.Plan, l.controlPlane().Network()
	if err := namespace.Remove(); err != nil {
		return err
	}
	if err := dropLink(ctx, inside, bridgePort(i)); err != nil { // a terminated namespace removes its links, but asynchronously
		return err
	}
	node, err := netns.Make(string(namespace))
	if err != nil {
		return err
	}
	return runIP(ctx,
		in(inside, "link add %s type veth peer name %s netns %s", bridgePort(i), nodeDevice, node),
		in(inside, "link set %s master %s up", bridgePort(i), bridge),
		in(inside, "route replace %s via %s", plan.Pods(i), plan.Node(i)),
		in(node, "link set lo up"),
		in(node, "link set %s address %s", nodeDevice, address.MAC(plan.Node(i))),
		in(node, "address add %s/%d dev %s", plan.Node(i), plan.Nodes().Bits(), nodeDevice),
		in(node, "link set %s up", nodeDevice),
		in(node, "route add default via %s", plan.ControlPlane()),
	)
}

// ipCommand is a command of ip(8) in a namespace.
type ipCommand struct {
	namespace netns.Namespace
	command   string
}

func in(namespace netns.Namespace, format string, args ...any) ipCommand {
	return ipCommand{namespace, fmt.Sprintf(format, args...)}
}

// runIP runs the commands until one fails.
func runIP(ctx context.Context, commands ...ipCommand) error {
	for _, c := range commands {
		if err := c.namespace.IP(ctx, c.command); err != nil {
			return err
		}
	}
	return nil
}

// dropLink removes a link if it exists. A link whose other end was just removed may disappear concurrently.
func dropLink(ctx context.Context, namespace netns.Namespace, link string) error {
	there, err := namespace.HasLink(ctx, link)
	if err != nil || !there {
		return err
	}
	failed := namespace.IP(ctx, "link delete "+link)
	there, err = namespace.HasLink(ctx, link)
	if err != nil || !there {
		return err
	}
	return failed
}

// lockHostNetwork locks the file of the host's network namespace, so that no lock file remains.
func lockHostNetwork() (unlock func(), err error) {
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("lock the host's network: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the host's network: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
