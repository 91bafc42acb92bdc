package nvidia

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/installer/render"
)

// deviation is a change of the rendered pod that a case must notice.
type deviation struct {
	// name is what differs; then image and name of the case that must fail, and a part of its error.
	name, image, inCase, want string
	change                    func(*corev1.PodSpec)
}

// deviations are the parts of the pod that an entry point, or the machine, cannot do without.
func deviations() []deviation {
	const ubuntu, rhel, life = "ubuntu24.04", "rhel9", "installation and removal"
	return []deviation{
		{"no /run/nvidia", ubuntu, life, "No such file or directory", func(p *corev1.PodSpec) {
			unmounted("/run/nvidia")(p)
			// The probe creates the folder in the container, possibly before the entry point opens its file there.
			main(p).StartupProbe.Exec.Command = []string{"sh", "-c", "[ -d /run/nvidia ]"}
		}},
		{"no propagation of /run/nvidia", ubuntu, life, "does not see the driver's root", func(p *corev1.PodSpec) {
			for _, m := range main(p).VolumeMounts {
				if m.MountPath == "/run/nvidia" {
					*m.MountPropagation = corev1.MountPropagationHostToContainer
				}
			}
		}},
		{"no firmware folder", ubuntu, life, "the persistence daemon does not run", unmounted("/lib/firmware")},
		{"files of sysfs that a kernel lacks", ubuntu, "kernel without memory hotplug", "CreateContainerError", func(p *corev1.PodSpec) {
			for i := range p.Volumes {
				if v := p.Volumes[i].HostPath; v != nil && v.Path == "/sys/devices/system" {
					v.Path, v.Type = "/sys/devices/system/memory/auto_online_blocks", nil
				}
			}
		}},
		{"not privileged", ubuntu, life, "ended", func(p *corev1.PodSpec) { main(p).SecurityContext.Privileged = new(false) }},
		{"no digest", ubuntu, "container restart while the driver is in use", "ended", without("DRIVER_CONFIG_DIGEST")},
		{"another digest for unload", ubuntu, "new pod of the same driver while it is in use", "ModuleInUse", func(p *corev1.PodSpec) {
			args := p.InitContainers[1].Args
			args[slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--digest=") })] = "--digest=other"
		}},
		{"no unload", "rhel9/precompiled", "upgrade after the container was killed", "version mismatch", func(p *corev1.PodSpec) {
			p.InitContainers = slices.DeleteFunc(p.InitContainers, func(c corev1.Container) bool { return c.Name == "unload" })
		}},
		{"no hook before termination", ubuntu, life, "sidecars see a driver that is not ready", func(p *corev1.PodSpec) { main(p).Lifecycle = nil }},
		{"a probe that writes no file", ubuntu, life, "no file reports to sidecars", func(p *corev1.PodSpec) {
			main(p).StartupProbe.Exec.Command = []string{"sh", "-c", "nvidia-smi && [ -e /run/nvidia/driver/usr/bin/nvidia-smi ]"}
		}},
		{"no PIDs of the host", rhel, "SELinux", "no label", func(p *corev1.PodSpec) { p.HostPID = false }},
		{"no repositories", ubuntu, "own package repositories", "Failed to update package cache", unmounted("/etc/apt/sources.list.d/mirror.list")},
		{"no Secret", ubuntu, "certificates and a Secret with the proxy", "Failed to update package cache", func(p *corev1.PodSpec) { main(p).EnvFrom = nil }},
		{"no subscription", rhel, "the host's subscription", "failed to reach RHEL package repositories", unmounted("/run/secrets/etc-pki-entitlement")},
		{"no module parameters", ubuntu, "module parameters", "the module is loaded with", unmounted("/drivers/nvidia.conf")},
		{"no headers of the host's network driver", ubuntu, "RDMA with the host's network driver", "disagrees about version", unmounted("/run/mellanox/drivers/usr/src")},
		{"no RDMA variable", ubuntu, "RDMA with a network driver container", "disagrees about version", without("GPU_DIRECT_RDMA_ENABLED")},
		{"no wait for the network driver", ubuntu, "RDMA without a network driver", "not reported", func(p *corev1.PodSpec) { p.InitContainers = p.InitContainers[:2] }},
		{"a probe of peermem that needs the module", ubuntu, "RDMA without a network adapter", "is not ready", func(p *corev1.PodSpec) {
			p.Containers[1].StartupProbe.Exec.Command = []string{"test", "-d", "/sys/module/nvidia_peermem"}
		}},
		{"no liveness probe of peermem", ubuntu, "replacement of the network driver", "no liveness probe", func(p *corev1.PodSpec) { p.Containers[1].LivenessProbe = nil }},
		{"no firmware path for unload", "rhel9/precompiled", "upgrade", "cannot load firmware", func(p *corev1.PodSpec) {
			p.InitContainers[1].Args = append(p.InitContainers[1].Args, "--firmware-path=")
		}},
	}
}

// main returns the driver container.
func main(p *corev1.PodSpec) *corev1.Container {
	for i := range p.Containers {
		if name := p.Containers[i].Name; name == render.DriverContainer || name == render.VGPUContainer {
			return &p.Containers[i]
		}
	}
	return nil
}

// unmounted removes a mount of the driver container.
func unmounted(path string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		c := main(p)
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
	}
}

// without removes a variable of the driver container.
func without(name string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		c := main(p)
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	}
}

// TestDeviations checks that the cases notice what they are for: each deviation of the rendered pod makes its case fail.
func TestDeviations(t *testing.T) {
	for _, d := range deviations() {
		t.Run(d.name, func(t *testing.T) {
			deviationsRun.Add(1)
			i := slices.IndexFunc(variants(), func(v variant) bool { return v.name == d.image })
			j := slices.IndexFunc(cases(), func(c contractCase) bool { return c.name == d.inCase })
			s := newScene(t, variants()[i], cases()[j].files)
			s.deviate, s.limit = d.change, hopeless
			err := cases()[j].run(s)
			if err == nil {
				t.Fatalf("the case %q succeeds", d.inCase)
			}
			if !strings.Contains(err.Error(), d.want) {
				t.Errorf("the error does not contain %q: %v", d.want, err)
			}
		})
	}
}
