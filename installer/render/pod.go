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

// httpsProbe returns p as requests of kubelet over TLS to the port.
func httpsProbe(path, port string, p corev1.Probe) *corev1.Probe {
	p.HTTPGet = &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: path, Port: intstr.FromString(port)}
	return &p
}

// confined returns the security context of a container that needs no host access.
func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// profiling returns the security context of a container that reads a GPU's performance counters. The driver reserves them for processes with CAP_SYS_ADMIN
// (NVreg_RestrictProfilingToAdminUsers, its default), and DCGM then has the DCGM_FI_PROF_* fields; NVIDIA's chart of dcgm-exporter adds the same one
// capability, the GPU Operator makes the container privileged.
func profiling() *corev1.SecurityContext {
	s := confined()
	s.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
	return s
}

// reading returns the security context of a container that also reads host files. On hosts with SELinux a confined domain cannot read most of them,
// whatever its user; without SELinux the type has no effect.
func reading() *corev1.SecurityContext {
	s := confined()
	s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
	return s
}

// privileged returns the security context of a container that changes the host.
func privileged() *corev1.SecurityContext { return &corev1.SecurityContext{Privileged: new(true)} }

// requests returns the default resource requests.
func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// fromField returns a variable with the value of a field of the pod.
func fromField(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
}

// folder returns a volume of a host folder, existing one that must exist already, and file one that may be a file.
func folder(name, hostPath string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: hostPath, Type: new(corev1.HostPathDirectoryOrCreate)},
	}}
}

func existing(name, hostPath string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: hostPath}}}
}

// scratch returns an empty volume with the lifetime of the pod.
func scratch(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// fromConfigMap returns a volume of a ConfigMap.
func fromConfigMap(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}
}

// hostMount is the mount point of the host's root in pods.
const hostMount = "/host"

// paths returns the host paths, with the kernel's own unless hardware is simulated.
func paths(in Input) v1alpha1.HostPathsSpec {
	p := in.Policy.Spec.HostPaths
	p.Proc = cmp.Or(p.Proc, "/proc")
	p.Sys = cmp.Or(p.Sys, "/sys")
	p.Dev = cmp.Or(p.Dev, "/")
	return p
}

// simulated reports whether hardware is simulated.
func simulated(in Input) bool { return paths(in).Sys != "/sys" }

// rootFlags returns the flags for a host root that is mounted at hostMount.
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
