package nodestate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/installer/phase"
)

func TestObservedPods(t *testing.T) {
	ended := func(code int32, message string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 10s"}}
	}
	verb := `{"verb":"unload","done":false,"reason":"ModuleInUse","message":"end process 7"}`
	const pull = "image i cannot be pulled; see the events of pod p"
	tests := map[string]struct {
		phase      corev1.PodPhase
		init, main corev1.ContainerStatus
		want       phase.Pod
	}{
		"new":     {phase: corev1.PodPending, want: phase.Pod{State: phase.PodPending}},
		"running": {phase: corev1.PodRunning, want: phase.Pod{State: phase.PodStarting}},
		"one of kubelet's words for an image that is missing": {
			phase: corev1.PodPending, main: corev1.ContainerStatus{State: waiting("ErrImagePull")},
			want: phase.Pod{State: phase.PodFailed, Reason: "ImagePullBackOff", Message: pull},
		},
		"the other word": {
			phase: corev1.PodPending, main: corev1.ContainerStatus{State: waiting("ImagePullBackOff")},
			want: phase.Pod{State: phase.PodFailed, Reason: "ImagePullBackOff", Message: pull},
		},
		"a host verb has a reason": {
			phase: corev1.PodPending, init: corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended(1, verb)}},
			want: phase.Pod{State: phase.PodFailed, Reason: "ModuleInUse", Message: "end process 7"},
		},
		"and still does while it is tried again": {
			phase: corev1.PodPending, init: corev1.ContainerStatus{
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: ended(1, verb)},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "ModuleInUse", Message: "end process 7"},
		},
		"failed once": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{RestartCount: 1, LastTerminationState: corev1.ContainerState{Terminated: ended(1, "")}},
			want: phase.Pod{State: phase.PodStarting, Reason: "Error", Message: "container c exited with code 1"},
		},
		"fails again and again, waiting": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{
				RestartCount: 4, State: waiting("CrashLoopBackOff"), LastTerminationState: corev1.ContainerState{Terminated: ended(1, "first\nlast")},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "Error", Message: "container c exited with code 1: last"},
		},
		"fails again and again, running": {
			phase: corev1.PodRunning, main: corev1.ContainerStatus{
				RestartCount: 5, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: corev1.ContainerState{Terminated: ended(1, "last")},
			},
			want: phase.Pod{State: phase.PodFailed, Reason: "Error", Message: "container c exited with code 1: last"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: test.phase}}
			pod.Name = "p"
			test.init.Name, test.main.Name, test.main.Image = "i", "c", "i"
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{test.init}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{test.main}
			test.want.Name = "p"
			if diff := cmp.Diff(test.want, ObservePod(pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestImagesThatCannotBePulled checks that the cause is read from the errors of containerd and CRI-O, as kubelet repeats them with both of its reasons.
// Missing images are NVIDIA/gpu-operator#910, #682 and #933.
func TestImagesThatCannotBePulled(t *testing.T) {
	const image = "nvcr.io/nvidia/driver:580-6.9.0-debian12"
	for text, want := range map[string][2]string{
		`rpc error: code = NotFound desc = failed to pull and unpack image "` + image + `": failed to resolve reference "` + image + `": ` + image + `: not found`: {
			"ImageNotFound", "the registry does not have it"},
		`Back-off pulling image "` + image + `": ErrImagePull: rpc error: code = NotFound desc = ` + image + `: not found`: {
			"ImageNotFound", "the registry does not have it"},
		"reading manifest 580-6.9.0-debian12 in nvcr.io/nvidia/driver: manifest unknown":         {"ImageNotFound", "the registry does not have it"},
		"failed to pull and unpack image: no match for platform in manifest: not found":          {"ImagePlatformMissing", "architecture"},
		"failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized":  {"ImagePullBackOff", "imagePullSecrets"},
		"pull access denied, repository does not exist or may require authorization":             {"ImagePullBackOff", "imagePullSecrets"},
		`Head "https://nvcr.io/v2/": tls: failed to verify certificate: x509: unknown authority`: {"ImagePullBackOff", "certificate"},
		`Head "https://nvcr.io/v2/": dial tcp: lookup nvcr.io on 10.0.0.2:53: no such host`:      {"ImagePullBackOff", "proxy"},
		"an error of another runtime": {"ImagePullBackOff", "see the events of pod p"},
	} {
		for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: text}},
			}}}}
			pod.Name = "p"
			got := ObservePod(pod)
			if got.State != phase.PodFailed || got.Reason != want[0] || !strings.Contains(got.Message, image) || !strings.Contains(got.Message, want[1]) {
				t.Errorf("%s: %q is %+v, want %q", reason, text, got, want)
			}
		}
	}
}

// TestLogOfTheDriverNamesTheCause checks that the error is found above the lines that NVIDIA's driver images print when they end (_shutdown in their
// script nvidia-driver), and that known errors have advice.
func TestLogOfTheDriverNamesTheCause(t *testing.T) {
	const end = "\nStopping NVIDIA persistence daemon...\nUnloading NVIDIA driver kernel modules...\nUnmounting NVIDIA driver rootfs..."
	for text, want := range map[string][3]string{
		"Resolving Linux kernel version...\nCould not resolve Linux kernel version" + end: {
			"KernelPackagesMissing", "1: Could not resolve Linux kernel version; ", "repoConfig"},
		"E: Unable to locate package linux-headers-6.9.0" + end: {"KernelPackagesMissing", "1: E: Unable to locate", "usePrecompiled"},
		"W: Temporary failure resolving 'archive.ubuntu.com'\nE: Unable to locate package linux-headers-6.9.0" + end: {
			"KernelPackagesMissing", "1: E: Unable to locate", "usePrecompiled"},
		"E: Unable to locate package linux-headers-6.9.0\nno headers for kernel 6.9.0: install linux-headers-6.9.0 on the node" + end: {
			"HeadersMissing", "1: no headers for kernel 6.9.0", "usePrecompiled"},
		"ERROR: Unable to find the kernel source tree for the currently running kernel." + end: {"HeadersMissing", "1: ERROR: Unable to find", "kernel-devel"},
		"Err:1 Temporary failure resolving 'archive.ubuntu.com'" + end:                         {"RepositoryNotReachable", "1: Err:1", "mirror"},
		"Unloading NVIDIA driver kernel modules...\nCould not unload NVIDIA driver kernel modules, driver is in use" + end: {
			"ModuleInUse", "1: Could not unload NVIDIA driver kernel modules, driver is in use; ", "restart the node"},
		"modprobe: ERROR: could not insert 'nvidia': Key was rejected by service" + end: {"SecureBoot", "1: modprobe: ERROR", "usePrecompiled"},
		// The trace of NVIDIA's script, which goes on while the container ends, and our script for Debian.
		"+ modprobe nvidia\nmodprobe: ERROR: could not insert 'nvidia': No such device\n+ _shutdown\n+ _unload_driver\n++ seq 1 50" +
			"\n+ echo 'Unloading NVIDIA driver kernel modules...'" + end + "\n+ rm -f /run/nvidia/nvidia-driver.pid": {
			"NoSupportedGPU", "1: modprobe: ERROR: could not insert 'nvidia': No such device; no GPU that this driver supports is on the PCI bus", "vfio-pci"},
		"NVRM: No NVIDIA GPU found.\nmodprobe: ERROR: could not insert 'nvidia': No such device": {
			"NoSupportedGPU", "1: modprobe: ERROR: could not insert 'nvidia': No such device; no GPU that this driver supports is on the PCI bus", "kernelModuleType"},
		// The sidecar of RDMA, github.com/NVIDIA/gpu-operator/issues/2868.
		"DRIVER_ARCH is aarch64\nmodprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\nfailed to load nvidia-peermem module": {
			"NetworkDriverMismatch", "1: ", "useHostMOFED"},
		"an error of a later image" + end: {"Error", "1: an error of a later image", ""},
		"Caught signal":                   {"Error", "1: Caught signal", ""},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: 4, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: text}},
		}}}}
		if got := ObservePod(pod); got.Reason != want[0] || !strings.Contains(got.Message, want[1]) || !strings.Contains(got.Message, want[2]) {
			t.Errorf("%q is %+v, want %q", text, got, want)
		}
	}
}
