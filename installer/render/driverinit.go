package render

import (
	"cmp"
	"path"

	corev1 "k8s.io/api/core/v1"
)

// helper returns an init container that runs one of the installer's host verbs with the node agent's image. The result is in its termination message.
func (d *driver) helper(name string) corev1.Container {
	agent := d.in.Policy.Spec.NodeAgent
	return corev1.Container{
		Name:            name,
		Image:           cmp.Or(agent.Image, d.in.Images.Node),
		ImagePullPolicy: agent.ImagePullPolicy,
		Args:            append([]string{"host", name}, rootFlags(d.in)...),
		Env:             []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
		Resources:       requests("5m", "24Mi"),
	}
}

// initContainers returns the host verbs that run before the driver container, in order. The network driver is awaited last: the modules of an earlier
// GPU driver keep it from being replaced.
func (d *driver) initContainers() []corev1.Container {
	all := []corev1.Container{d.preflight(), d.unload()}
	if d.set.Spec.RDMA.Chosen() {
		all = append(all, d.awaitNetworkDriver())
	}
	return all
}

// preflight checks the host before any change. It mounts the host read-only.
func (d *driver) preflight() corev1.Container {
	c := d.helper("preflight")
	c.Args = append(c.Args, "--os="+d.set.Host.OS, "--scratch="+path.Join(hostMount, paths(d.in).KubeletRoot))
	if d.set.Spec.UsePrecompiled {
		c.Args = append(c.Args, "--kernel="+d.set.Host.Kernel, "--modules=precompiled")
	}
	c.SecurityContext = reading()
	// Including submounts, which are also read-only if the kernel supports it.
	c.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: hostMount, ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)}}
	return c
}

// unload removes another driver's modules and mounts.
func (d *driver) unload() corev1.Container {
	c := d.helper("unload")
	c.Args = append(c.Args, "--digest="+d.what.Digest)
	if simulated(d.in) {
		// The simulated kernel is in the same folder as the simulated sysfs.
		c.Args = append(c.Args, "--simulated="+path.Join(hostMount, path.Dir(paths(d.in).Sys), "bin/kernel"))
	}
	c.SecurityContext = hostSecurity()
	c.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: hostMount, MountPropagation: new(corev1.MountPropagationBidirectional)}}
	return c
}

// awaitNetworkDriver waits for the network driver, whose symbols nvidia_peermem is compiled with. On nodes without such network adapters it succeeds at
// once. It gives up in half of the startup timeout, so that the node's status shows what is missing.
func (d *driver) awaitNetworkDriver() corev1.Container {
	c := d.helper("network-driver")
	c.Args = append(c.Args, "--timeout="+(d.set.Spec.StartupTimeout.Duration/2).String())
	if d.set.Spec.RDMA.UseHostMOFED {
		c.Args = append(c.Args, "--from-host")
	}
	c.SecurityContext = reading()
	c.VolumeMounts = []corev1.VolumeMount{{
		Name: "host", MountPath: hostMount, ReadOnly: true, MountPropagation: new(corev1.MountPropagationHostToContainer),
	}}
	return c
}
