package render

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Files in a driver container that other containers read. The images write daemonsFile, the startup probe readyFile, for which sidecars wait
// (gpu-driver-container ubuntu24.04/nvidia-driver:114,798).
const (
	validations = "/run/nvidia/validations"
	daemonsFile = validations + "/.driver-daemons-status"
	readyFile   = validations + "/.driver-ctr-ready"
)

// probePeriod is the period of the startup probes.
const probePeriod = 5 * time.Second

// startupProbe returns a startup probe with the startup timeout of the driver.
func (d *driver) startupProbe(command ...string) *corev1.Probe {
	return startupProbe(d.set.Spec.StartupTimeout.Duration, command...)
}

func startupProbe(timeout time.Duration, command ...string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
		PeriodSeconds:    int32(probePeriod.Seconds()),
		TimeoutSeconds:   60, // nvidia-smi initializes every GPU, up to sixteen per machine
		FailureThreshold: int32(max(1, (timeout+probePeriod-1)/probePeriod)),
	}
}

// driverProbe runs the driver's nvidia-smi. NVIDIA's images install into their own root, so the container's nvidia-smi is that of the driver, and it
// succeeds once the modules are loaded. The root is mounted after that, and other containers need the root. Images of vGPU host drivers have no
// sidecars and report no daemons.
func (d *driver) driverProbe() *corev1.Probe {
	if d.set.VGPU {
		return d.startupProbe("sh", "-c", `nvidia-smi >/dev/null && `+rootShown)
	}
	return d.startupProbe("sh", "-c", readinessScript(paths(d.in).Sys))
}

// readinessScript returns what NVIDIA's startup probe does (gpu-operator manifests/state-driver/0400_configmap.yaml:15-58), and waits for the root as
// well. Until it succeeds the file of an earlier container is absent, so that no sidecar starts with a driver that is being replaced.
func readinessScript(sys string) string {
	return strings.NewReplacer("@sys", sys, "@ready", readyFile, "@daemons", daemonsFile, "@shown", rootShown).Replace(`set -eu
mkdir -p ` + validations + `
rm -f @ready
[ -f @sys/module/nvidia/refcnt ] || { echo "the module nvidia is not loaded"; exit 1; }
if [ -f @daemons ] && [ "$(cat @daemons)" != Ready ]; then echo "the driver's daemons are not ready"; exit 1; fi
nvidia-smi >/dev/null || { echo "nvidia-smi failed"; exit 1; }
@shown || { echo "the driver's root is not mounted"; exit 1; }
for name in GDRCOPY_ENABLED GDS_ENABLED GPU_DIRECT_RDMA_ENABLED; do eval echo "$name: \${$name:-false}"; done >@ready.tmp
mv @ready.tmp @ready`)
}

// lifecycle removes the files before the container unloads the driver, as NVIDIA's does (0500_daemonset.yaml:367-370).
func (d *driver) lifecycle() *corev1.Lifecycle {
	if d.set.VGPU {
		return nil
	}
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
		Command: []string{"/bin/sh", "-c", "rm -f " + readyFile + " " + daemonsFile},
	}}}
}

// sidecarProbes returns the probes of the sidecar that loads a module. The module is loaded after the driver, which has its own startup timeout, and
// may be compiled as well.
//
// Those of nvidia_peermem are the probe of NVIDIA's image (0500_daemonset.yaml:411-430). It succeeds on nodes without a network driver, where the
// module cannot be loaded and is not needed. The liveness probe restarts the container when a replaced network driver has unloaded the module: the
// container loads it only at its start.
func (d *driver) sidecarProbes(module string) (startup, liveness *corev1.Probe) {
	// For simulated hardware the image sees the simulated sysfs at its host path.
	startup = d.startupProbe("test", "-d", paths(d.in).Sys+"/module/"+module)
	startup.TimeoutSeconds = 10
	startup.FailureThreshold *= 2
	if module == peermem {
		startup.Exec.Command = []string{"sh", "-c", "nvidia-driver probe_nvidia_peermem"}
		liveness = &corev1.Probe{
			ProbeHandler:        startup.ProbeHandler,
			InitialDelaySeconds: 30, PeriodSeconds: 30, TimeoutSeconds: 10, FailureThreshold: 1,
		}
	}
	return startup, liveness
}
