package render

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// peermem is the module that connects GPUs with network adapters.
const peermem = "nvidia_peermem"

// sidecar is a container of the driver pod that loads one additional module.
type sidecar struct {
	name, image string
	component   v1alpha1.Component
	// command and args start it; module is the module that it loads.
	command []string
	args    []string
	module  string
	env     []corev1.EnvVar
}

// sidecars returns the enabled sidecar containers.
func (d *driver) sidecars() []corev1.Container {
	spec := d.set.Spec
	var all []corev1.Container
	for _, s := range []sidecar{
		// It reloads the module whenever the network driver unloads it.
		{
			"nvidia-peermem-ctr", cmp.Or(spec.RDMA.Image, d.what.Image), spec.RDMA.Component,
			[]string{"nvidia-driver"}, []string{"reload_nvidia_peermem"}, peermem, d.rdmaEnv(),
		},
		{
			"nvidia-fs-ctr", d.gds, spec.GDS,
			afterDriver("nvidia-gds-driver"), []string{"install"}, "nvidia_fs", nil,
		},
		{
			"nvidia-gdrcopy-ctr", d.gdrcopy, spec.GDRCopy,
			afterDriver("nvidia-gdrcopy-driver"), []string{"install"}, "gdrdrv", nil,
		},
	} {
		if s.component.Chosen() {
			all = append(all, d.sidecar(s))
		}
	}
	return all
}

// afterDriver returns a command that runs a program once the driver root is mounted, which is after the driver has loaded its modules.
func afterDriver(program string) []string { return once(rootShown, program) }

// once returns a command that runs a program when a shell test succeeds.
func once(test, program string) []string {
	return []string{"sh", "-c", `until ` + test + `; do sleep 5; done; exec "$0" "$@"`, program}
}

func (d *driver) sidecar(s sidecar) corev1.Container {
	c := corev1.Container{
		Name:            s.name,
		Command:         s.command,
		Args:            s.args,
		Env:             slices.Concat([]corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}, s.env, d.proxies()),
		EnvFrom:         d.secretEnv(),
		SecurityContext: hostSecurity(),
		VolumeMounts:    d.sidecarMounts(s),
	}
	c.StartupProbe, c.LivenessProbe = d.sidecarProbes(s.module)
	apply(&c, s.component, s.image)
	return c
}

// proxies returns the proxy variables of the driver container: a sidecar reaches the same package repositories by the same way. Variables of the
// sidecar's own component replace them.
func (d *driver) proxies() []corev1.EnvVar {
	var all []corev1.EnvVar
	for _, e := range d.set.Spec.Env {
		switch strings.ToUpper(e.Name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY":
			all = append(all, e)
		}
	}
	return all
}

// sidecarMounts returns the driver's folder, logs, what installs packages and configures modules, and for peermem the network driver.
func (d *driver) sidecarMounts(s sidecar) []corev1.VolumeMount {
	propagation := corev1.MountPropagationHostToContainer
	all := d.mounts(propagation)
	for _, m := range d.hostMounts() {
		switch m.name {
		case "var-log", "dev-log":
			all = append(all, m.in())
		case "run-mellanox-drivers":
			if s.module == peermem {
				all = append(all, m.in())
			}
		}
	}
	for _, m := range d.distributionMounts() {
		all = append(all, m.in())
	}
	return append(all, d.configMounts()...)
}
