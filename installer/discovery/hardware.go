package discovery

import (
	"cmp"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/containerd"
	"github.com/tessera-gpu/tessera/installer/host/crio"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// Host has the paths of the host's files.
type Host struct {
	Roots host.Roots
	// ContainerdConfig is the path of containerd's main file on the host; CDI is the folder of CDI specs that the runtime must read.
	ContainerdConfig, CDI string
}

// Look reads the host. Runtime is the container runtime with its version, as kubelet reports it, such as containerd://2.2.1.
func (h Host) Look(containerRuntime string) (v1alpha1.HardwareStatus, error) {
	gpus, err := survey.GPUs(h.Roots)
	if err != nil {
		return v1alpha1.HardwareStatus{}, err
	}
	system, err := survey.OS(h.Roots)
	if err != nil {
		return v1alpha1.HardwareStatus{}, err
	}
	status := v1alpha1.HardwareStatus{
		GPUs: int32(len(gpus)), PCI: survey.Devices(gpus), Mode: survey.Mode(gpus), OS: system.Tag, OSName: system.Name, //nolint:gosec // a bus has few devices
		Architecture: runtime.GOARCH, Runtime: containerRuntime,
	}
	for _, fact := range []struct {
		to   *string
		read func(host.Roots) (string, error)
	}{
		{&status.Machine, survey.Machine}, {&status.BootID, survey.BootID}, {&status.Kernel, survey.Kernel},
		{&status.HostDriver, survey.HostDriver}, {&status.LoadedDriver, survey.LoadedDriver},
	} {
		if *fact.to, err = fact.read(h.Roots); err != nil {
			return v1alpha1.HardwareStatus{}, err
		}
	}
	if status.SecureBoot, err = survey.SecureBoot(h.Roots); err != nil {
		return v1alpha1.HardwareStatus{}, err
	}
	status.CDI, status.NVIDIARuntime = h.readRuntime(containerRuntime)
	return status, nil
}

// readRuntime reports whether the configured runtime reads CDI specs, and its default handler if that is NVIDIA's. CRI-O 1.23 and newer read them by
// default, containerd 2.0 and newer unless its configuration disables it, containerd 1.7 if its configuration enables it. If the configuration of containerd
// cannot be read or parsed, cdi is false: the toolkit then reports the error.
func (h Host) readRuntime(containerRuntime string) (cdi bool, nvidia string) {
	name, version, _ := strings.Cut(containerRuntime, "://")
	files := containerd.OnHost{Roots: h.Roots}
	switch name {
	case "containerd":
		load := containerd.Load
		if AtLeast(version, 2, 0) {
			load = containerd.LoadMigrated
		}
		config, err := load(files, h.ContainerdConfig)
		if err != nil {
			return false, ""
		}
		return AtLeast(version, 1, 7) && config.CDI(h.CDI), config.NVIDIARuntime()
	case "cri-o":
		nvidia, _ = crio.NVIDIARuntime(files)
		return AtLeast(version, 1, 23), nvidia
	}
	return false, ""
}

// AtLeast compares the first two numbers of a version, which may begin with v and end with anything.
func AtLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	second, _, _ = strings.Cut(second, "-")
	a, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	b, err := strconv.Atoi(second)
	if err != nil {
		b = 0
	}
	return cmp.Or(cmp.Compare(a, major), cmp.Compare(b, minor)) >= 0
}

// describe returns the hardware in one line for the log.
func describe(s v1alpha1.HardwareStatus) string {
	return fmt.Sprintf("%d GPUs, %s, kernel %s, driver %s, %s", s.GPUs, s.OS, s.Kernel, cmp.Or(s.LoadedDriver, "none"), s.Runtime)
}
