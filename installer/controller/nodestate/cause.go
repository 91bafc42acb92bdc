package nodestate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/installer/phase"
)

// cause is a known error: what it contains, in lower case, the reason of the pod, and what to do.
type cause struct {
	parts          []string
	reason, advice string
}

// pullCauses are the errors of image pulls, as containerd and CRI-O return them and kubelet repeats them in the container's status. The first that applies
// counts: a missing platform is also reported as not found.
var pullCauses = []cause{
	{[]string{"no match for platform", "no image found in manifest list for architecture", "no matching manifest"}, phase.ReasonImagePlatform,
		"the image has no variant for the node's architecture; build it for this architecture, or select only nodes of the other one"},
	{[]string{"not found", "notfound", "manifest unknown", "name unknown"}, phase.ReasonImageNotFound, "the registry does not have it"},
	{[]string{"unauthorized", "forbidden", "denied", "authentication required", "authorization failed"}, phase.ReasonImagePullBackOff,
		"the registry refuses access; check imagePullSecrets"},
	{[]string{"x509", "certificate"}, phase.ReasonImagePullBackOff, "the container runtime does not trust the registry's certificate"},
	{[]string{"no such host", "i/o timeout", "connection refused", "dial tcp", "deadline exceeded", "unreachable"}, phase.ReasonImagePullBackOff,
		"the registry cannot be reached; check its address, and the proxy of the container runtime"},
}

// pullProblem returns the reason and the message for an image that cannot be pulled. kubelet alternates between two reasons with the same error.
func pullProblem(image, pod, text string) (reason, message string) {
	for _, c := range pullCauses {
		if c.in(text) >= 0 {
			return c.reason, fmt.Sprintf("image %s cannot be pulled: %s", image, c.advice)
		}
	}
	return phase.ReasonImagePullBackOff, fmt.Sprintf("image %s cannot be pulled; see the events of pod %s", image, pod)
}

// driverCauses are errors in the log of NVIDIA's driver images, from their script nvidia-driver (_resolve_kernel_version, _unload_driver), from the package
// managers and from modprobe.
var driverCauses = []cause{
	{[]string{"could not resolve linux kernel version", "unable to locate package linux-", "no match for argument: kernel-", "unable to find a match: kernel-"},
		phase.ReasonKernelPackages, "the package repositories have no packages of the node's kernel; boot a kernel whose packages they have, " +
			"set repoConfig to repositories that have them, or set usePrecompiled"},
	{[]string{"no headers for kernel", "unable to find the kernel source tree", "your kernel headers for kernel"}, phase.ReasonHeadersMissing,
		"install the headers of the running kernel on the node (linux-headers-<kernel>, kernel-devel-<kernel>), or set usePrecompiled"},
	{[]string{"temporary failure resolving", "could not resolve host", "could not resolve '", "connection timed out", "failed to update the dnf metadata cache"},
		phase.ReasonRepository, "the package repositories cannot be reached; set repoConfig to a mirror, the proxy in env, or usePrecompiled"},
	{[]string{"driver is in use"}, phase.ReasonModuleInUse, "end the processes that use it, or restart the node"},
	{[]string{"key was rejected by service", "required key not available"}, "SecureBoot",
		"the kernel rejects the signature of the modules; set usePrecompiled, enroll the key with which they are signed, or disable secure boot"},
	{[]string{"could not insert 'nvidia': no such device"}, phase.ReasonNoSupportedGPU,
		"no GPU that this driver supports is on the PCI bus and free; `lspci -k -d 10de:` on the node lists its GPUs and their kernel drivers; set a version " +
			"that supports them (GPUs before Turing also need kernelModuleType: proprietary), or release those of another kernel driver (nouveau, vfio-pci)"},
	{[]string{"could not insert 'nvidia_peermem': invalid argument"}, phase.ReasonNetworkDriver,
		"nvidia_peermem was compiled for another version of the network driver than the loaded one; set rdma.useHostMOFED if the network driver is " +
			"installed on the host, and delete the driver's pod, which compiles it again"},
	{[]string{"no space left on device"}, "DiskFull", "free some space on the node"},
}

// driverProblem returns the reason of the last known error in the log of a container, with what to do. It returns false if there is none.
func driverProblem(text string) (reason, advice string, known bool) {
	last := -1
	for _, c := range driverCauses {
		if at := c.in(text); at > last {
			last, reason, advice = at, c.reason, c.advice
		}
	}
	return reason, advice, last >= 0
}

// in returns the last position at which a text contains the error, or -1.
func (c cause) in(text string) int {
	last := -1
	text = strings.ToLower(text)
	for _, part := range c.parts {
		last = max(last, strings.LastIndex(text, part))
	}
	return last
}

// shutdown begins the lines that NVIDIA's driver images print when they end, after the error (_shutdown and _unload_driver in nvidia-driver).
var shutdown = []string{"Caught signal", "Stopping NV", "Unloading NVIDIA driver kernel modules", "Unmounting NVIDIA driver rootfs"}

// lastLine returns the last line of a log that is not about the end of the container itself. NVIDIA's script traces its commands from the first modprobe
// on (set -o xtrace in _load_driver), also those that run when it fails.
func lastLine(text string) string {
	lines := strings.Split(text, "\n")
	for _, line := range slices.Backward(lines) {
		if !slices.ContainsFunc(shutdown, func(begin string) bool { return strings.HasPrefix(line, begin) }) && !traced(line) {
			return line
		}
	}
	return lines[len(lines)-1]
}

// traced reports whether a line of a log is a command that a shell traces: plus signs, one per level, and a space.
func traced(line string) bool {
	command := strings.TrimLeft(line, "+")
	return command != line && strings.HasPrefix(command, " ")
}
