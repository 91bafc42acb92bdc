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

// What a driver's pod is called and where it shows itself: the contract of NVIDIA's driver images.
const (
	// DriverContainer is the main container of a driver's pod, VGPUContainer that of a vGPU host driver's.
	DriverContainer = "nvidia-driver-ctr"
	VGPUContainer   = "nvidia-vgpu-manager-ctr"

	// driverRoot is where the image shows its root, in the container and by default on the host.
	driverRoot    = "/run/nvidia/driver"
	driverAccount = "tessera-driver"
	// rootShown is true in a shell once a driver shows its root.
	rootShown = "[ -e " + driverRoot + "/usr/bin/nvidia-smi ]"
	runNVIDIA = "run-nvidia"
)

// drivers returns a DaemonSet per driver.
func drivers(in Input) ([]client.Object, error) { return driverSets(in, OperandDriver) }

// vgpuManagers returns a DaemonSet per vGPU host driver.
func vgpuManagers(in Input) ([]client.Object, error) { return driverSets(in, OperandVGPUManager) }

// driverSets returns the DaemonSets of one operand, one per digest, in the order of their digests.
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

// driver is a driver whose DaemonSet is to be made.
type driver struct {
	in      Input
	operand string
	set     DriverSet
	what    v1alpha1.DesiredDriver
	// gds and gdrcopy are the images of these, empty when they are off.
	gds, gdrcopy string
}

// shared returns the driver of two owners that ask for the same: their nodes share a DaemonSet, so that a node that goes from one to the
// other keeps its driver. Tolerations and pull secrets are those of both; for the rest, which installs nothing, the owner whose name is first counts.
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

// daemonSet returns the driver's DaemonSet. A changed template touches no pod that runs: what would have to is another digest.
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
		HostPID:                      true, // the scripts look at the host's processes
		// The container unloads the modules when it is asked to end.
		TerminationGracePeriodSeconds: new(int64(60)),
		InitContainers:                []corev1.Container{d.preflight(), d.unload()},
		Containers:                    append([]corev1.Container{d.main()}, d.sidecars()...),
		Volumes:                       d.volumes(),
	}
}

// main returns the driver's container.
func (d *driver) main() corev1.Container {
	c := corev1.Container{
		Name:            DriverContainer,
		Command:         []string{"nvidia-driver"},
		Args:            []string{"init"},
		Env:             d.env(),
		SecurityContext: hostSecurity(),
		StartupProbe:    d.startupProbe(),
		// The image's scripts write no message: what they print last says why a driver does not load.
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

// hostSecurity is that of a container that loads kernel modules.
func hostSecurity() *corev1.SecurityContext {
	s := privileged()
	s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"}
	return s
}

// env are the variables that NVIDIA's images read.
func (d *driver) env() []corev1.EnvVar {
	env := []corev1.EnvVar{
		fromField("NODE_NAME", "spec.nodeName"),
		fromField("NODE_IP", "status.hostIP"),
		{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}, // no runtime hook is to look at this container
		// With it an image finds what it installed under the same digest in this boot, and does not install it again.
		{Name: "DRIVER_CONFIG_DIGEST", Value: d.what.Digest},
	}
	if d.set.VGPU {
		return env
	}
	env = append(env, corev1.EnvVar{Name: "KERNEL_MODULE_TYPE", Value: string(d.set.Spec.KernelModuleType)})
	if d.set.Spec.KernelModuleType == v1alpha1.ModulesOpen {
		env = append(env, corev1.EnvVar{Name: "OPEN_KERNEL_MODULES_ENABLED", Value: "true"}) // images before 570
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

// probePeriod is how often a driver that is being installed is looked at.
const probePeriod = 5 * time.Second

// startupProbe asks the driver itself. NVIDIA's images install into their own root, so nvidia-smi of the container is that of the driver, without
// changing roots, and it answers once the modules are loaded; the root is shown after that, and only then is a driver any use to others.
func (d *driver) startupProbe() *corev1.Probe {
	timeout := d.set.Spec.StartupTimeout.Duration
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", `nvidia-smi >/dev/null && ` + rootShown},
		}},
		PeriodSeconds:    int32(probePeriod.Seconds()),
		TimeoutSeconds:   60, // nvidia-smi starts every GPU of a machine of sixteen
		FailureThreshold: int32(max(1, (timeout+probePeriod-1)/probePeriod)),
	}
}

// helper returns an init container that does one of the installer's verbs on the host. How it ends stands in its termination message. Its image is
// the node agent's.
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

// preflight looks at the host before anything is touched: it sees it read-only.
func (d *driver) preflight() corev1.Container {
	c := d.helper("preflight")
	c.Args = append(c.Args, "--os="+d.set.Host.OS, "--scratch="+path.Join(hostMount, paths(d.in).KubeletRoot))
	if d.set.Spec.UsePrecompiled {
		c.Args = append(c.Args, "--kernel="+d.set.Host.Kernel, "--modules=precompiled")
	}
	c.SecurityContext = reading()
	// With what is mounted below it, of which nothing can be written either where the kernel can see to it.
	c.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: hostMount, ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyIfPossible)}}
	return c
}

// unload takes away another driver's modules and mounts.
func (d *driver) unload() corev1.Container {
	c := d.helper("unload")
	c.Args = append(c.Args, "--digest="+d.what.Digest)
	if simulated(d.in) {
		// What stands for the kernel lies beside what stands for its sysfs.
		c.Args = append(c.Args, "--simulated="+path.Join(hostMount, path.Dir(paths(d.in).Sys), "bin/kernel"))
	}
	c.SecurityContext = hostSecurity()
	c.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: hostMount, MountPropagation: new(corev1.MountPropagationBidirectional)}}
	return c
}

// installFolders are the volumes that driver and sidecars share, and where they are mounted. Where the host is to see the driver's root elsewhere, that
// folder lies on the one to which images show it.
func (d *driver) installFolders() []corev1.Volume {
	p := paths(d.in)
	volumes := []corev1.Volume{folder(runNVIDIA, path.Dir(driverRoot))}
	if p.DriverInstallDir != driverRoot {
		volumes = append(volumes, folder("driver-root", p.DriverInstallDir))
	}
	return volumes
}
