package cluster

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/cgroup"
)

const (
	// LimitedNode is the name of a node whose driver and kernel limit GPU memory.
	LimitedNode = "node4"
	// LimitedDriver is the driver that this node has installed itself.
	LimitedDriver = "615.71.09"
	// limitedKernel is the first release with the controller dmem.
	limitedKernel = "6.14.0-24-generic"
	// LimitedTaint keeps pods from the node that do not tolerate it: the others demand no driver of branch 615.
	LimitedTaint = "example.com/limited"
)

// CanLimit reports whether this host can have a LimitedNode, whose containers must have paths in a hierarchy of control groups of version 2 and no control
// group namespaces: containerd makes these only on hosts without version 1.
func CanLimit() (bool, error) {
	host, err := cgroup.Host()
	return host.Hybrid(), err
}

// Limited returns the node LimitedNode. Its kernel is the host's: the control groups of its containers have the files of the controllers misc and dmem in a
// tree of the fake hardware, where the agent finds sysfs.
func Limited() lab.NodeSpec {
	files := maps.Clone(OSRelease(Ubuntu24))
	files["/usr/local/bin/runc"] = "#!/bin/sh\nexec " + lab.GPUFolder + "/" + kernelProgram + " runc \"$@\"\n"
	return lab.NodeSpec{
		Name: LimitedNode, GPU: "h100x2,bare,kernel=" + limitedKernel, Files: files,
		Taints: []corev1.Taint{{Key: LimitedTaint, Effect: corev1.TaintEffectNoSchedule}},
	}
}

// InstallLimitedDriver installs the driver of LimitedNode.
func (c *Cluster) InstallLimitedDriver(ctx context.Context) error {
	return c.InstallHostDriver(ctx, LimitedNode, LimitedDriver)
}
