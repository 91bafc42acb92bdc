package render

import (
	"cmp"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

func percent(text string) intstr.IntOrString { return intstr.FromString(text) }

func whole(n int32) intstr.IntOrString { return intstr.FromInt32(n) }

// confined is the security of a container that asks the host for nothing.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// reading is that of one that reads the host's files besides. On hosts with SELinux a confined domain may not read most of them, whoever
// runs in it; without SELinux the type means nothing.
func reading() *corev1.SecurityContext {
	s := confined()
	s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	return s
}

// privileged is the security of a container that works on the host.
func privileged() *corev1.SecurityContext { return &corev1.SecurityContext{Privileged: new(true)} }

// requests returns what a container asks for when the policy does not say.
func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// fromField returns a variable with a field of the pod.
func fromField(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
}

// folder returns a volume of a folder of the host, existing returns one that is not made when it is missing, file one that may be a file.
func folder(name, hostPath string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: hostPath, Type: new(corev1.HostPathDirectoryOrCreate)},
	}}
}

func existing(name, hostPath string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: hostPath}}}
}

// scratch returns an empty volume that ends with the pod.
func scratch(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// fromConfigMap returns a volume of a ConfigMap.
func fromConfigMap(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}
}

// hostMount is where the host's root is mounted in pods that need it.
const hostMount = "/host"

// paths are the host's, with the kernel's own where no hardware is simulated.
func paths(in Input) v1alpha1.HostPathsSpec {
	p := in.Policy.Spec.HostPaths
	p.Proc = cmp.Or(p.Proc, "/proc")
	p.Sys = cmp.Or(p.Sys, "/sys")
	p.Dev = cmp.Or(p.Dev, "/")
	return p
}

// simulated reports whether hardware is simulated.
func simulated(in Input) bool { return paths(in).Sys != "/sys" }

// rootFlags tell a program where it sees the host, which is mounted at hostMount.
func rootFlags(in Input) []string {
	p := paths(in)
	return []string{
		"--host-root=" + hostMount,
		"--proc-root=" + path.Join(hostMount, p.Proc),
		"--sys-root=" + path.Join(hostMount, p.Sys),
		"--dev-root=" + path.Join(hostMount, p.Dev),
		"--driver-root=" + p.DriverInstallDir,
	}
}
