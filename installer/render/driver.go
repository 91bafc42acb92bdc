package render

import (
	"cmp"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Container names and paths of NVIDIA's driver images.
const (
	// DriverContainer is the main container of a driver pod, VGPUContainer that of a vGPU host driver pod.
	DriverContainer = "nvidia-driver-ctr"
	VGPUContainer   = "nvidia-vgpu-manager-ctr"

	// driverRoot is the mount point of the image's root, in the container and by default on the host.
	driverRoot    = "/run/nvidia/driver"
	driverAccount = "tessera-driver"
	// rootShown is a shell test that succeeds once the driver root is mounted.
	rootShown = "[ -e " + driverRoot + "/usr/bin/nvidia-smi ]"
	runNVIDIA = "run-nvidia"
)

// drivers returns one DaemonSet per driver.
func drivers(in Input) ([]client.Object, error) { return driverSets(in, OperandDriver) }

// vgpuManagers returns one DaemonSet per vGPU host driver.
func vgpuManagers(in Input) ([]client.Object, error) { return driverSets(in, OperandVGPUManager) }

// driverSets returns the DaemonSets of one operand, one per digest, sorted by digest.
func driverSets(in Input, operand string) ([]client.Object, error) {
	byDigest := map[string]*driver{}
	for _, set := range in.Drivers {
		if set.VGPU != (operand == OperandVGPUManager) {
			continue
		}
		set = complete(in, set)
		what, err := describe(in, set)
		if err != nil {
			return nil, err
		}
		d := &driver{in: in, operand: operand, set: set, what: what}
		if d.gds, d.gdrcopy, err = companionImages(in, set); err != nil {
			return nil, err
		}
		if other := byDigest[what.Digest]; other != nil {
			d = other.shared(d)
		}
		byDigest[what.Digest] = d
	}
	var objects []client.Object
	for _, digest := range sortedKeys(byDigest) {
		objects = append(objects, byDigest[digest].daemonSet())
	}
	return objects, nil
}

// driver is the input of one driver DaemonSet.
type driver struct {
	in      Input
	operand string
	set     DriverSet
	what    v1alpha1.DesiredDriver
	// gds and gdrcopy are the images of these components, empty if disabled.
	gds, gdrcopy string
}

// shared returns the combined driver of two owners with the same digest: their nodes share a DaemonSet, so a node that moves from one owner to the
// other keeps its driver. Tolerations and pull secrets are united; other settings, which do not affect the installation, come from the owner whose
// name sorts first.
func (d *driver) shared(other *driver) *driver {
	first, second := *d, other.set.Spec.Component
	if other.set.Owner < d.set.Owner {
		first, second = *other, d.set.Spec.Component
	}
	c := &first.set.Spec.Component
	c.Tolerations = union(c.Tolerations, second.Tolerations)
	c.ImagePullSecrets = slices.Concat(c.ImagePullSecrets, second.ImagePullSecrets)
	return &first
}

// daemonSet returns the driver's DaemonSet. A changed template does not replace running pods: a change that requires this changes the digest.
func (d *driver) daemonSet() *appsv1.DaemonSet {
	short := v1alpha1.DriverLabelValue(d.what.Digest)
	w := workload{
		operand: d.operand, name: d.operand + "-" + short, variant: map[string]string{v1alpha1.LabelDriver: short}, apart: true,
		component: d.set.Spec.Component, image: d.what.Image,
		annotations: map[string]string{AnnotationDigest: d.what.Digest},
		pod:         d.pod(),
	}
	w.component.ImagePullSecrets = slices.Concat(w.component.ImagePullSecrets, d.in.Policy.Spec.NodeAgent.ImagePullSecrets)
	for _, p := range components(d.set.Spec)[1:] {
		w.component.Tolerations = slices.Concat(w.component.Tolerations, p.component.Tolerations)
		w.component.ImagePullSecrets = slices.Concat(w.component.ImagePullSecrets, p.component.ImagePullSecrets)
	}
	return w.daemonSet(d.in, appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType})
}

func (d *driver) pod() corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName:           driverAccount,
		AutomountServiceAccountToken: new(false),
		NodeSelector:                 map[string]string{v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(d.what.Digest)},
		HostPID:                      true, // the scripts inspect processes of the host
		// The container unloads the modules on termination.
		TerminationGracePeriodSeconds: new(int64(60)),
		InitContainers:                []corev1.Container{d.preflight(), d.unload()},
		Containers:                    append([]corev1.Container{d.main()}, d.sidecars()...),
		Volumes:                       d.volumes(),
	}
}

// main returns the driver container.
func (d *driver) main() corev1.Container {
	c := corev1.Container{
		Name:            DriverContainer,
		Command:         []string{"nvidia-driver"},
		Args:            []string{"init"},
		Env:             d.env(),
		SecurityContext: hostSecurity(),
		StartupProbe:    d.startupProbe(),
		// The scripts write no termination message: the end of their log explains why a driver does not load.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             slices.Concat(d.mounts(corev1.MountPropagationBidirectional), d.mainMounts(), d.configMounts()),
	}
	if d.set.VGPU {
		c.Name = VGPUContainer
	}
	if d.set.Spec.SecretEnv != "" {
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: d.set.Spec.SecretEnv}}}}
	}
	return c
}

// hostSecurity returns the security context of a container that loads kernel modules.
func hostSecurity() *corev1.SecurityContext {
	s := privileged()
	s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"}
	return s
}

// env returns the variables that NVIDIA's images read.
func (d *driver) env() []corev1.EnvVar {
	env := []corev1.EnvVar{
		fromField("NODE_NAME", "spec.nodeName"),
		fromField("NODE_IP", "status.hostIP"),
		{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}, // no runtime hook may process this container
		// With it an image detects an installation with the same digest in this boot and skips the installation.
		{Name: "DRIVER_CONFIG_DIGEST", Value: d.what.Digest},
	}
	if d.set.VGPU {
		return env
	}
	env = append(env, corev1.EnvVar{Name: "KERNEL_MODULE_TYPE", Value: string(d.set.Spec.KernelModuleType)})
	if d.set.Spec.KernelModuleType == v1alpha1.ModulesOpen {
		env = append(env, corev1.EnvVar{Name: "OPEN_KERNEL_MODULES_ENABLED", Value: "true"}) // for images before 570
	}
	return append(env, d.rdmaEnv()...)
}

func (d *driver) rdmaEnv() []corev1.EnvVar {
	rdma := d.set.Spec.RDMA
	if !rdma.Chosen() {
		return nil
	}
	env := []corev1.EnvVar{{Name: "GPU_DIRECT_RDMA_ENABLED", Value: "true"}}
	if rdma.UseHostMOFED {
		env = append(env, corev1.EnvVar{Name: "USE_HOST_MOFED", Value: "true"})
	}
	return env
}

// probePeriod is the period of the startup probe.
const probePeriod = 5 * time.Second

// startupProbe runs the driver's nvidia-smi. NVIDIA's images install into their own root, so the container's nvidia-smi is that of the driver, and it
// succeeds once the modules are loaded. The root is mounted after that, and other containers need the root.
func (d *driver) startupProbe() *corev1.Probe {
	timeout := d.set.Spec.StartupTimeout.Duration
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", `nvidia-smi >/dev/null && ` + rootShown},
		}},
		PeriodSeconds:    int32(probePeriod.Seconds()),
		TimeoutSeconds:   60, // nvidia-smi initializes every GPU, up to sixteen per machine
		FailureThreshold: int32(max(1, (timeout+probePeriod-1)/probePeriod)),
	}
}

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

// installFolders returns the volumes that driver and sidecars share. If the driver root has another path on the host, that folder is mounted at the
// path that images use.
func (d *driver) installFolders() []corev1.Volume {
	p := paths(d.in)
	volumes := []corev1.Volume{folder(runNVIDIA, path.Dir(driverRoot))}
	if p.DriverInstallDir != driverRoot {
		volumes = append(volumes, folder("driver-root", p.DriverInstallDir))
	}
	return volumes
}
