package render_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hostWorkers are the containers that work on the host: they load modules, open devices or change the runtime. Nothing else does.
var hostWorkers = map[string][]string{
	"tessera-node":         {"agent"},
	"tessera-toolkit":      {"toolkit"},
	"tessera-driver":       {"unload", "nvidia-driver-ctr", "nvidia-peermem-ctr", "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"},
	"tessera-vgpu-manager": {"unload", "nvidia-vgpu-manager-ctr"},
	// It writes to sysfs and changes MIG devices (gpu-operator assets/state-vgpu-device-manager/0600_daemonset.yaml:57).
	"tessera-vgpu-device-manager": {"nvidia-vgpu-device-manager"},
}

// profilers are the containers that read performance counters, which need CAP_SYS_ADMIN. The exporter does not where an engine reads them.
var profilers = []string{"nvidia-dcgm-ctr", "nvidia-dcgm-exporter"}

// callers are the operands that speak to the API server.
var callers = []string{"tessera-discovery", "tessera-node", "tessera-scheduler", "tessera-vgpu-device-manager"}

// nobodies are the operands to whose user nothing on the host belongs. The monitors are root: kubelet's socket is root's.
var nobodies = []string{"tessera-discovery", "tessera-scheduler"}

func TestContainersHaveNoMoreThanTheyNeed(t *testing.T) {
	seen := map[string]int{}
	for _, in := range inputs() {
		for _, object := range objects(t, in) {
			pod, ok := podOf(object)
			if !ok {
				continue
			}
			operand := object.GetLabels()["app.kubernetes.io/name"]
			seen[operand]++
			token := pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken
			if token != slices.Contains(callers, operand) {
				t.Errorf("%s: its pods get a token of the API server: %v", object.GetName(), token)
			}
			if pod.ServiceAccountName == "" {
				t.Errorf("%s: its pods have the default service account", object.GetName())
			}
			if (pod.HostPID || pod.HostIPC || pod.HostNetwork) && len(hostWorkers[operand]) == 0 {
				t.Errorf("%s: its pods see namespaces of the host", object.GetName())
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				worker := slices.Contains(hostWorkers[operand], c.Name)
				if privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged; privileged != worker {
					t.Errorf("%s: %s is privileged: %v", object.GetName(), c.Name, privileged)
				}
				if !worker {
					checkConfined(t, object.GetName(), pod, c)
				}
				user := pod.SecurityContext
				if unprivileged := user != nil && user.RunAsNonRoot != nil && *user.RunAsNonRoot && *user.RunAsUser != 0; unprivileged != slices.Contains(nobodies, operand) {
					t.Errorf("%s: %s is unprivileged: %v", object.GetName(), c.Name, unprivileged)
				}
			}
		}
	}
	for _, operand := range []string{
		"tessera-discovery", "tessera-node", "tessera-toolkit", "tessera-driver", "tessera-vgpu-manager", "tessera-scheduler", "tessera-dcgm", "tessera-dcgm-exporter",
		"tessera-vgpu-device-manager",
	} {
		if seen[operand] == 0 {
			t.Errorf("%s was never looked at", operand)
		}
	}
}

func checkConfined(t *testing.T, name string, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	s := c.SecurityContext
	seccomp := s.SeccompProfile
	switch {
	case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		t.Errorf("%s: %s may gain privileges", name, c.Name)
	case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
		t.Errorf("%s: %s may write into its root", name, c.Name)
	case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
		t.Errorf("%s: %s keeps capabilities", name, c.Name)
	case !slices.Equal(s.Capabilities.Add, wantedCapabilities(c)):
		t.Errorf("%s: %s has capabilities", name, c.Name)
	case seccomp == nil || seccomp.Type != corev1.SeccompProfileTypeRuntimeDefault:
		t.Errorf("%s: %s may call the kernel for anything", name, c.Name)
	}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if pod.Volumes[i].HostPath != nil && !m.ReadOnly {
			t.Errorf("%s: %s may write to the host at %s", name, c.Name, pod.Volumes[i].HostPath.Path)
		}
	}
}

// wantedCapabilities returns the capabilities that a container needs.
func wantedCapabilities(c corev1.Container) []corev1.Capability {
	remote := slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "DCGM_REMOTE_HOSTENGINE_INFO" })
	if slices.Contains(profilers, c.Name) && !remote {
		return []corev1.Capability{"SYS_ADMIN"}
	}
	return nil
}

// podOf returns the pod that an object makes, templateOf its template.
func podOf(object client.Object) (corev1.PodSpec, bool) {
	template, ok := templateOf(object)
	return template.Spec, ok
}

func templateOf(object client.Object) (corev1.PodTemplateSpec, bool) {
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.Template, true
	case *appsv1.Deployment:
		return o.Spec.Template, true
	}
	return corev1.PodTemplateSpec{}, false
}
