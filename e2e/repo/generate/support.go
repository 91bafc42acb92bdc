package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const supportHead = `# What is supported

<!-- Written by go generate ./e2e/repo/generate from e2e/repo/generate/support.go. Change that file instead. -->

| state | meaning |
|---|---|
| on hardware | ran on a machine with real GPUs ([bench/hardware.md](../bench/hardware.md)), and its recordings are test data |
| tested | the named tests run it, with the fake GPU unless the line names another |
| written for | the named tests run parts of it; the whole has not run |
| not supported | refused, or nothing is done for it |

`

// supportState is how far something is supported.
type supportState string

const (
	onHardware   supportState = "on hardware"
	tested       supportState = "tested"
	writtenFor   supportState = "written for"
	notSupported supportState = "not supported"
)

// supportEntry is a line of docs/support.md. {NAME} in what is replaced by the version that the module e2e/env/lab/modules/NAME has of it. tests are folders
// with the name of a test, or with the text of a spec.
type supportEntry struct {
	what   string
	state  supportState
	tests  []string
	remark string
}

var supported = []struct {
	title   string
	entries []supportEntry
}{
	{"Kubernetes", []supportEntry{
		{"{kubernetes} with kube-scheduler or tessera-scheduler", tested, []string{"e2e/tests/suite:TestSuite", "e2e/tests/upstream:BenchmarkUpstream"}, "the suites, and Kubernetes' own cases of the scheduler"},
		{"{kubernetes136} with kube-scheduler", tested, []string{"e2e/tests/suite:TestSuite", "e2e/tests/installation:TestInstallation", "internal/capability:TestDetect"}, "`KUBERNETES=1.36 make test-lab`; without tessera-scheduler, see [install.md](install.md#kubernetes-136)"},
		{"{kubernetes136} upgraded to {kubernetes}, and its kubelet below the newer control plane", tested,
			[]string{"e2e/tests/installation:keeps running pods while the control plane changes, and the older kubelet prepares claims"}, "`KUBERNETES=1.36 make test-lab`"},
		{"1.38", writtenFor, []string{"scheduler-plugin/plugin:TestNodeAllocatableResources", "e2e/repo/verify:TestChartSelectsTheScheduler"},
			"with the feature gate that it is planned to have on by default, and the scheduler of 1.37"},
		{"before 1.36", notSupported, []string{"internal/capability:TestDetect"}, "refused at the start of agent, installer and CLI"},
		{"kubelet before 1.36", notSupported, []string{"installer/controller/nodestate:TestOldKubelet", "installer/phase:TestModel"},
			"the node reports `KubeletTooOld` and gets no driver and no agent: [install.md](install.md#versions-of-kubelet)"},
	}},
	{"Container runtimes", []supportEntry{
		{"containerd {containerd}, runc", tested, []string{"e2e/tests/suite:TestSuite"}, "the suites"},
		{"containerd {containerd17}", tested, []string{"e2e/tests/installation:A17: has containerd 1.7 read CDI specs"}, "the installer enables CDI"},
		{"containerd {containerd}, crun", tested, []string{"e2e/tests/vm:TestVM"}, ""},
		{"containerd with CDI switched off", tested, []string{"installer/discovery:TestReadRuntime"}, "the node reports `CDIDisabled`"},
		{"CRI-O, runc or crun", writtenFor, []string{"installer/host/crio:TestNVIDIARuntime", "installer/host/toolkit:TestRuntimesThatNeedNothing"}, ""},
		{"Docker with cri-dockerd", notSupported, nil, "it does not read CDI specs"},
	}},
	{"Distributions", []supportEntry{
		{"upstream Kubernetes, as with kubeadm", tested, []string{"e2e/tests/installation:A1: brings bare nodes to pods that compute"}, ""},
		{"k3s, RKE2, k0s, MicroK8s with containerd 2", writtenFor, []string{"installer/host/cri:TestFindSocketsOfDistributions"}, ""},
		{"k3s, RKE2, k0s, MicroK8s with containerd 1.7", notSupported, []string{"installer/host/toolkit:TestRefuses"}, "they generate the configuration: upgrade containerd"},
		{"Talos, Bottlerocket", writtenFor, []string{"kubelet-plugin/driverroot:TestLibraryFolders"}, "with the driver of the distribution"},
	}},
	{"Drivers", []supportEntry{
		{"535.261.03, 550.163.01", tested, []string{"e2e/tests/driver:TestNVIDIAsFiles", "e2e/tests/driver:TestNVIDIAsFilesInAContainer", "kubelet-plugin/mps:TestNVIDIAsPrograms",
			"e2e/tests/driver:TestModulesInTheDriverPod"},
			"NVIDIA's files, programs and kernel modules, without a GPU (`make test-driver`, `make test-modules`)"},
		{"580.159.04", onHardware, []string{"e2e/fake/fakegpu:TestAnswersOfHardware", "e2e/fake/fakegpu:TestMPSAnswersOfHardware"}, ""},
		{"615", writtenFor, []string{"e2e/tests/agent:TestTimeSharesAreLimited", "e2e/tests/agent:TestMPSSharesAreLimited", "dra-driver/nvml:TestMemoryOfALimitedReader"},
			"memory limits of shares and MPS version 3, after NVIDIA's documentation; not on hardware"},
		{"before 535", notSupported, nil, "reported as too old"},
		{"driver containers of Ubuntu and Red Hat", writtenFor, []string{"e2e/tests/contract:TestFakeDriverDoesWhatNVIDIAsImagesDo"}, "the entry programs of NVIDIA's images; the images have not run"},
	}},
	{"Nodes", []supportEntry{
		{"control groups v1", tested, []string{"e2e/tests/suite:TestSuite", "internal/host/cgroup:TestUnified"}, "on hosts of the lab that have v1; kubelet requires `failCgroupV1: false`"},
		{"control groups v2 with systemd", tested, []string{"e2e/tests/vm:TestVM"}, "a virtual machine with the kernel of Debian 12 (`make test-vm`); a whole GPU also on hardware"},
		{"amd64 with glibc", onHardware, []string{"e2e/tests/suite:TestSuite"}, ""},
		{"arm64", writtenFor, []string{"e2e/repo/verify:TestPodsAreOnlyOnNodesWithImages"}, "compiled by hand, and not run"},
		{"musl on the host", notSupported, nil, "the driver needs glibc"},
	}},
	{"GPUs", []supportEntry{
		{"H100, H200: whole GPUs, MPS", onHardware, []string{"e2e/fake/fakegpu:TestAnswersOfHardware"}, ""},
		{"MIG of Hopper, Blackwell, Ampere", tested, []string{"api/wire:TestCountersAgreeWithTheModel", "e2e/tests/suite:TestSuite"}, "NVIDIA's published geometries"},
		{"T4, L40S, RTX PRO 6000 and other GPUs", tested, []string{"api/wire:TestGolden"}, ""},
		{"GPUs for virtual machines", writtenFor, []string{"cmd/tessera-node:TestSandbox", "e2e/tests/vm:TestVM"},
			"another PCI function was bound to vfio-pci and opened in a pod; no virtual machine has been started"},
		{"NVIDIA vGPU: hosts, guests", writtenFor, []string{"installer/render:TestVGPUDeviceManagerAwaitsTheHostDriver", "installer/controller/node:TestVGPUHostsAreReadyWithTheirDriverAlone"},
			"no vGPU device has been created ([vgpu.md](vgpu.md))"},
		{"Tegra, WSL", notSupported, nil, "NVML is not complete there"},
	}},
}

// renderSupport returns docs/support.md. An error names a test that does not exist.
func renderSupport(repository string) (string, error) {
	var page strings.Builder
	page.WriteString(supportHead)
	for _, group := range supported {
		fmt.Fprintf(&page, "## %s\n\n| what | state | tests | remark |\n|---|---|---|---|\n", group.title)
		for _, e := range group.entries {
			what, err := withVersions(repository, e.what)
			if err != nil {
				return "", err
			}
			if len(e.tests) == 0 && e.state != notSupported {
				return "", fmt.Errorf("support: %s is %q and names no test", e.what, e.state)
			}
			var names []string
			for _, test := range e.tests {
				name, err := findTest(repository, test)
				if err != nil {
					return "", fmt.Errorf("support: %s: %w", e.what, err)
				}
				names = append(names, name)
			}
			fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", what, e.state, strings.Join(names, ", "), e.remark)
		}
		page.WriteString("\n")
	}
	return strings.TrimSuffix(page.String(), "\n"), nil
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// pinned is the first requirement of a module, which is what it is for.
var pinned = regexp.MustCompile(`(?m)^require \S+ v(\S+)$`)

// withVersions replaces the placeholders by the versions that the lab runs.
func withVersions(repository, text string) (string, error) {
	var failed error
	text = placeholder.ReplaceAllStringFunc(text, func(found string) string {
		module := filepath.Join(repository, "e2e/env/lab/modules", found[1:len(found)-1], "go.mod")
		content, err := os.ReadFile(module)
		version := pinned.FindSubmatch(content)
		if err != nil || version == nil {
			failed = fmt.Errorf("support: %s: no version in %s: %w", found, module, err)
			return found
		}
		return string(version[1])
	})
	return text, failed
}

// findTest returns how the page names a test, FOLDER:NAME, and an error if the folder has neither a function of the name nor a spec of the text.
func findTest(repository, test string) (string, error) {
	folder, name, _ := strings.Cut(test, ":")
	files, err := filepath.Glob(filepath.Join(repository, folder, "*_test.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(text), "func "+name+"(") || strings.Contains(string(text), `It("`+name) {
			return fmt.Sprintf("[%s](../%s)", strings.SplitN(name, ":", 2)[0], folder), nil
		}
	}
	return "", fmt.Errorf("%s has no test %q", folder, name)
}
