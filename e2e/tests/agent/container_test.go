package agent

import (
	"os"
	"slices"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/e2e/env/runc"
)

// container is the OCI configuration that a runtime creates from CDI devices.
type container struct{ oci.Spec }

// container injects the devices into an empty container, as containerd does with the IDs from kubelet.
func (n *node) container(devices []*drapb.Device) container {
	n.t.Helper()
	var ids []string
	for _, device := range devices {
		ids = append(ids, device.GetCdiDeviceIds()...)
	}
	var c container
	n.must(runc.Inject(&c.Spec, n.cdi(), ids...))
	return c
}

// nodes returns the device nodes in the container, sorted.
func (c container) nodes() []string {
	var paths []string
	for _, device := range c.Linux.Devices {
		paths = append(paths, device.Path)
	}
	slices.Sort(paths)
	return paths
}

// mounts reports whether a host file is mounted at the path.
func (c container) mounts(path string) bool {
	return slices.ContainsFunc(c.Mounts, func(m oci.Mount) bool {
		_, err := os.Stat(m.Source)
		return m.Destination == path && err == nil
	})
}
