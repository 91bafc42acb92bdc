package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Hardware adds fake GPUs to the lab's nodes. A spec is the name of a machine in the catalog, such as h100x8, with
// options after commas: bare (no driver is installed), driver=<version>, kernel=<release>.
type Hardware struct{}

var _ lab.Hardware = Hardware{}

// Install creates the machine in the folder.
func (Hardware) Install(ctx context.Context, node lab.NodeSpec, folder string) error {
	machine, err := parseHardware(node.GPU)
	if err != nil {
		return err
	}
	machine.Node = node.Name
	if err := fakegpu.Install(ctx, folder, machine); err != nil || !machine.Bare && !node.Virtual {
		return err
	}
	return addKernel(ctx, folder)
}

func parseHardware(text string) (fakegpu.Spec, error) {
	name, options, _ := strings.Cut(text, ",")
	spec := fakegpu.Spec{Machine: name}
	for option := range strings.SplitSeq(options, ",") {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "":
		case "bare":
			spec.Bare = true
		case "driver":
			spec.DriverVersion = value
		case "kernel":
			spec.Kernel = value
		default:
			return fakegpu.Spec{}, fmt.Errorf("hardware %q: option %q: must be bare, driver=<version> or kernel=<release>", text, option)
		}
	}
	return spec, nil
}

// Reboot applies a power cycle to the GPUs.
func (Hardware) Reboot(_ context.Context, folder string) error { return fakegpu.Reboot(folder) }

// Boot sets the boot ID in the GPUs' part of /proc to the one that kubelet reports.
func (Hardware) Boot(_ context.Context, folder, bootID string) error {
	return fakegpu.SetBootID(folder, bootID)
}

// Nodes returns the default lab: a node of eight H100 with NVSwitch, and a mixed node of A30, two of them with MIG mode
// on, and L40S.
func Nodes() []lab.NodeSpec {
	return []lab.NodeSpec{
		{Name: "node1", GPU: "h100x8"},
		{Name: "node2", GPU: "a30x4l40sx4"},
	}
}

// BareNodes returns three nodes without a driver: H100; A30, two of them with MIG mode on, and L40S; A100 on an older
// operating system and kernel.
func BareNodes() []lab.NodeSpec {
	return []lab.NodeSpec{
		{Name: "node1", GPU: "h100x8,bare", Files: OSRelease(Ubuntu24)},
		{Name: "node2", GPU: "a30x4l40sx4,bare", Files: OSRelease(Ubuntu24)},
		{Name: "node3", GPU: "a100-40x2,bare,kernel=5.15.0-153-generic", Files: OSRelease(Ubuntu22)},
	}
}

// OSRelease returns the /etc/os-release of a node for an operating system tag such as ubuntu24.04.
func OSRelease(tag string) map[string]string {
	version := strings.TrimPrefix(tag, "ubuntu")
	text := fmt.Sprintf("ID=ubuntu\nVERSION_ID=%q\nPRETTY_NAME=\"Ubuntu %s LTS\"\n", version, version)
	return map[string]string{"/etc/os-release": text}
}
