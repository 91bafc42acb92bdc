package render

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Paths in the container of the vGPU device manager. The program looks for the driver's root and the host's root there (vgpu-device-manager
// cmd/nvidia-k8s-vgpu-dm/main.go:56-57).
const (
	vgpuDriverRoot   = "/driver-root"
	vgpuConfigFolder = "/vgpu-config"
	vgpuConfigFile   = "config.yaml"

	// vgpuDefaults is the ConfigMap of policies that name none.
	vgpuDefaults = "tessera-vgpu-config"
)

// vgpuDeviceManager returns NVIDIA's vGPU device manager, as the GPU Operator deploys it (assets/state-vgpu-device-manager/0600_daemonset.yaml). It creates
// the vGPU devices of the configuration that the node label nvidia.com/vgpu.config names. It runs on nodes on which a host driver is placed: it is removed
// with the driver, and a new pod creates the devices of the next driver.
func vgpuDeviceManager(in Input) ([]client.Object, error) {
	spec, hosts := in.Policy.Spec.VGPUDeviceManager, in.Policy.Spec.VGPUManager
	if !spec.On() || !hosts.Chosen() {
		return nil, nil
	}
	placed := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelDriver, Operator: corev1.NodeSelectorOpExists}
	w := workload{
		operand: OperandVGPUDeviceManager, name: OperandVGPUDeviceManager, component: spec.Component, image: cmp.Or(spec.Image, in.Images.VGPUDeviceManager),
		annotations: map[string]string{AnnotationConfig: in.Contents[configMap(spec.Config.Name)]},
		pod: corev1.PodSpec{
			ServiceAccountName: OperandVGPUDeviceManager,
			Affinity:           required(append(slices.Concat(notOptedOut("vgpu-device-manager"), chosen(hosts.NodeSelector)), placed)),
			Containers:         []corev1.Container{vgpuDeviceContainer(in)},
			Volumes: []corev1.Volume{
				fromConfigMap("vgpu-config", cmp.Or(spec.Config.Name, vgpuDefaults)),
				existing("sys", paths(in).Sys), existing("host", paths(in).Root), folder("driver-root", paths(in).DriverInstallDir),
			},
		},
	}
	var objects []client.Object
	if spec.Config.Name == "" {
		text := vgpuConfig()
		w.annotations[AnnotationConfig] = hash(text)
		objects = append(objects, written(in, vgpuDefaults, vgpuConfigFile, text))
	}
	return append(objects, w.daemonSet(in, rolling())), nil
}

// vgpuDeviceContainer returns the container of the device manager. The program applies a configuration at its start and when the label changes, and does not
// repeat one that fails. It therefore starts when the driver is ready for vGPU devices, and restarts when the driver's root is unmounted: a driver that is
// loaded again has no vGPU devices.
func vgpuDeviceContainer(in Input) corev1.Container {
	const toContainer = corev1.MountPropagationHostToContainer
	startup := startupProbe(complete(in, DriverSet{VGPU: true}).Spec.StartupTimeout.Duration, "test", "-e", vgpuDriverRoot+rootFile)
	return corev1.Container{
		Name:    "nvidia-vgpu-device-manager",
		Command: once(vgpuParents, "nvidia-k8s-vgpu-dm"),
		Env: []corev1.EnvVar{
			fromField("NODE_NAME", "spec.nodeName"), fromField("NAMESPACE", "metadata.namespace"),
			{Name: "CONFIG_FILE", Value: vgpuConfigFolder + "/" + vgpuConfigFile},
			{Name: "DEFAULT_VGPU_CONFIG", Value: in.Policy.Spec.VGPUDeviceManager.Config.Default},
		},
		SecurityContext: privileged(),
		StartupProbe:    startup,
		LivenessProbe:   &corev1.Probe{ProbeHandler: startup.ProbeHandler, PeriodSeconds: startup.PeriodSeconds, FailureThreshold: 1},
		Resources:       requests("5m", "32Mi"),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "vgpu-config", MountPath: vgpuConfigFolder, ReadOnly: true},
			{Name: "sys", MountPath: "/sys"},
			{Name: "host", MountPath: hostMount, MountPropagation: new(toContainer)},
			{Name: "driver-root", MountPath: vgpuDriverRoot, MountPropagation: new(toContainer)},
		},
	}
}

// vgpuParents is a shell test that succeeds when vGPU devices can be created, under the conditions of NVIDIA's validator (gpu-operator
// cmd/nvidia-validator/main.go:1783-1850): the driver's root is mounted, and either all virtual functions of the GPUs are enabled, or none is and the kernel
// lists parents of mediated devices. Driver images enable the functions after they mount the root (gpu-driver-container
// vgpu-manager/ubuntu24.04/nvidia-driver:331-332).
const vgpuParents = `[ -e ` + vgpuDriverRoot + rootFile + ` ] && { on=0 all=0
for d in /sys/bus/pci/devices/*; do
case "$(cat $d/vendor) $(cat $d/class)" in "0x10de 0x03"*) ;; *) continue ;; esac
[ -e $d/sriov_totalvfs ] || continue
on=$((on + $(cat $d/sriov_numvfs))) all=$((all + $(cat $d/sriov_totalvfs)))
done
if [ $on -gt 0 ]; then [ $on -eq $all ]; else ls /sys/class/mdev_bus/* >/dev/null 2>&1; fi; }`
