package render

import (
	"path"
	"slices"

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
	rootShown = "[ -e " + driverRoot + rootFile + " ]"
	// rootFile is a file of every driver root.
	rootFile  = "/usr/bin/nvidia-smi"
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
		ServiceAccountName:            driverAccount,
		AutomountServiceAccountToken:  new(false),
		NodeSelector:                  map[string]string{v1alpha1.LabelDriver: v1alpha1.DriverLabelValue(d.what.Digest)},
		HostPID:                       true, // the scripts inspect processes of the host
		TerminationGracePeriodSeconds: new(d.gracePeriod()),
		InitContainers:                d.initContainers(),
		Containers:                    append([]corev1.Container{d.main()}, d.sidecars()...),
		Volumes:                       d.volumes(),
	}
}

// gracePeriod returns the time in seconds in which the container unloads the modules on termination. A vGPU host driver first removes the virtual
// functions of every GPU, with up to ten attempts (gpu-driver-container vgpu-manager/ubuntu24.04/nvidia-driver:236-247).
func (d *driver) gracePeriod() int64 {
	if d.set.VGPU {
		return 120
	}
	return 60
}

// main returns the driver container.
func (d *driver) main() corev1.Container {
	c := corev1.Container{
		Name:            DriverContainer,
		Command:         []string{"nvidia-driver"},
		Args:            []string{"init"},
		Env:             d.env(),
		EnvFrom:         d.secretEnv(),
		SecurityContext: hostSecurity(),
		StartupProbe:    d.driverProbe(),
		Lifecycle:       d.lifecycle(),
		// The scripts write no termination message: the end of their log explains why a driver does not load.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             slices.Concat(d.mounts(corev1.MountPropagationBidirectional), d.mainMounts(), d.configMounts()),
	}
	if d.set.VGPU {
		c.Name = VGPUContainer
	}
	return c
}

// secretEnv returns the variables of the driver's Secret.
func (d *driver) secretEnv() []corev1.EnvFromSource {
	if d.set.Spec.SecretEnv == "" {
		return nil
	}
	return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: d.set.Spec.SecretEnv}}}}
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
	for _, c := range []struct {
		name   string
		chosen bool
	}{{"GDS_ENABLED", d.set.Spec.GDS.Chosen()}, {"GDRCOPY_ENABLED", d.set.Spec.GDRCopy.Chosen()}} {
		if c.chosen {
			env = append(env, corev1.EnvVar{Name: c.name, Value: "true"})
		}
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
