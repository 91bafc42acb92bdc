package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
)

// limits is a node whose driver limits memory, and on which the real runc starts containers with a CUDA program. The control groups are runc's; the files of
// their controllers are in a tree in the place of the hierarchy, because the test's host may lack the controllers.
type limits struct {
	*node
	kubelet *kubelet
	agent   *agent
	stage   runc.Stage
	mirror  string
	// container is the name of the next container, hooks are hooks that it has after those of its devices.
	container string
	hooks     []oci.Hook
}

func newLimits(t *testing.T, backend fakegpu.MemoryBackend) *limits {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || !strings.Contains(string(text), "0::") {
		t.Skip("the host has no control groups of version 2")
	}
	n := emptyNode(t, "h100x2")
	n.must(fakegpu.Install(t.Context(), n.machine(), fakegpu.Spec{Node: n.name, Machine: "h100x2", DriverVersion: "615.71.09"}))
	n.must(fakegpu.SetMemoryBackend(n.machine(), backend))
	l := &limits{node: n, stage: runc.Stage{Image: filepath.Join(n.dir, "image"), Dir: filepath.Join(n.dir, "c-"+n.name)}, mirror: filepath.Join(n.dir, "fakegpu")}
	n.must(harness.Build(t.Context(), l.mirror, "./e2e/fake/fakegpu/cmd/fakegpu"))
	source, err := os.ReadFile("../../fake/fakegpu/testdata/cuda_client.c")
	n.must(err)
	n.must(runc.BuildImage(t.Context(), l.stage.Image, string(source)))
	// The agent's own group.
	_, after, _ := strings.Cut(string(text), "0::")
	own, _, _ := strings.Cut(after, "\n")
	_, err = fakegpu.AddGroup(n.machine(), own, "misc", "dmem")
	n.must(err)
	l.agent, l.kubelet = n.run()
	return l
}

// share prepares a claim of time shares with this memory each, all of the first GPU.
func (l *limits) share(name, memory string, count int) []*drapb.Device {
	l.t.Helper()
	var devices []gpu.Device
	for range count {
		devices = append(devices, gpu.Device{GPU: l.hardware.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.TimeShare}})
	}
	return l.kubelet.mustPrepare(l.claim(name, devices, takes(memory, "")))
}

// run starts a container with the devices and the CUDA program, and returns the last line of its output.
func (l *limits) run(controllers string, devices []*drapb.Device, verbs ...string) string {
	l.t.Helper()
	var ids []string
	for _, device := range devices {
		ids = append(ids, device.GetCdiDeviceIds()...)
	}
	spec := runc.Spec()
	// What NVIDIA's own hook would read has no effect.
	spec.Process.Env = []string{"PATH=/", "NVIDIA_GPU_MEMORY_LIMIT=80000", "FAKE_NVML_CGROUP=/"}
	spec.Annotations = map[string]string{"io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.container-name": l.container}
	spec.Hooks = &oci.Hooks{CreateRuntime: []oci.Hook{{Path: l.mirror, Args: []string{"fakegpu", "group", "--dir=" + l.machine(), "--controllers=" + controllers}}}}
	l.must(runc.Inject(&spec, l.cdi(), ids...))
	spec.Hooks.CreateRuntime = append(spec.Hooks.CreateRuntime, l.hooks...)
	// MPS daemons of this test are no pods: they have the shared memory of the host, and not that of the claim's mount.
	spec.Mounts = append(spec.Mounts, oci.Mount{Destination: "/dev/shm", Source: "/dev/shm", Type: "bind", Options: []string{"rbind", "rw"}})
	result, err := l.stage.Run(l.t.Context(), spec, append([]string{"/program", "libcuda.so.1"}, verbs...)...)
	l.must(err)
	lines := strings.Split(strings.TrimSpace(result.Output), "\n")
	return lines[len(lines)-1]
}

const oom = "cuMemAlloc_v2: error 2"

// A container gets what its time shares of a GPU have together, from the first instruction on, and its environment changes nothing. The real runc makes the
// control groups, runs the hooks, and starts the program.
func TestTimeSharesAreLimited(t *testing.T) {
	for name, backend := range map[string]fakegpu.MemoryBackend{"misc": fakegpu.Misc, "dmem": fakegpu.Dmem} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t, backend)
			const controllers = "cpu,memory,misc,dmem"
			small, pair := l.share("small", "2Gi", 1), l.share("pair", "4Gi", 2)
			for what, test := range map[string]struct {
				devices []*drapb.Device
				verb    string
				want    string
			}{
				"one share":                   {small, "memory", "1792 of 2048 MiB"},
				"all of it":                   {small, "allocate=1792", "allocated"},
				"more":                        {small, "allocate=1793", oom},
				"two shares of a claim":       {pair, "memory", "7936 of 8192 MiB"},
				"one of them":                 {pair[:1], "memory", "3840 of 4096 MiB"},
				"shares of two claims":        {append(small[:1:1], pair...), "memory", "9984 of 10240 MiB"},
				"more than all of them":       {append(small[:1:1], pair...), "allocate=9985", oom},
				"another container, as first": {small, "allocate=1792", "allocated"},
			} {
				if got := l.run(controllers, test.devices, test.verb); got != test.want {
					t.Errorf("%s: %q, want %q", what, got, test.want)
				}
			}
			g := l.hardware.GPUs[0]
			l.container = "main"
			l.run(controllers, pair, "memory")
			l.agent.metric(fmt.Sprintf(`tessera_container_memory_limit_bytes{claim="%s-pair",container="main",gpu=%q,namespace="default",node=%q,pod="train-0",product=%q,uuid=%q} %g`,
				l.name, g.Name(), l.name, g.Product, g.UUID, float64(8<<30)))
		})
	}
}

// A container whose control group lacks the controller does not start, and the Events of its claim have the reason.
func TestUnlimitedSharesDoNotStart(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	claim := l.claim("crun", []gpu.Device{{GPU: l.hardware.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.TimeShare}}}, takes("2Gi", ""), onNode(l.node))
	devices := l.kubelet.mustPrepare(claim)
	if got := l.run("cpu,memory", devices, "memory"); !strings.Contains(got, "lacks the controller misc") {
		t.Errorf("%q", got)
	}
	if message := l.warns(claim, "MemoryLimitFailed"); !strings.Contains(message, "on node "+l.name) || !strings.Contains(message, "lacks the controller misc") {
		t.Errorf("Event %q", message)
	}
}

// A container does not start if the hook of NVIDIA's toolkit would replace its limit with that of its environment. The hook is as nvidia-ctk 1.20.2 writes it
// to CDI specs.
func TestToolkitDoesNotReplaceLimits(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	l.hooks = []oci.Hook{{Path: "/usr/bin/nvidia-cdi-hook", Args: []string{"nvidia-cdi-hook", hook.ToolkitLimits, "--driver-root", "/", "--gpu-id", l.hardware.GPUs[0].UUID}}}
	claim := l.claim("both", []gpu.Device{{GPU: l.hardware.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.TimeShare}}}, takes("2Gi", ""), onNode(l.node))
	if got := l.run("misc", l.kubelet.mustPrepare(claim), "memory"); !strings.Contains(got, "remove that GPU, or these variables, from the pod") {
		t.Errorf("%q", got)
	}
	if message := l.warns(claim, "MemoryLimitFailed"); !strings.Contains(message, hook.ToolkitLimits) {
		t.Errorf("Event %q", message)
	}
}

// While an agent is restarted, a container that starts waits for it.
func TestLimitsWaitForTheAgent(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	devices := l.share("late", "2Gi", 1)
	l.agent.terminate()
	started := make(chan string, 1)
	go func() { started <- l.run("misc", devices, "memory") }()
	l.node.run()
	if got := <-started; got != "1792 of 2048 MiB" {
		t.Errorf("%q", got)
	}
}

// With misc, a group can inherit the limit of one that was removed: a whole GPU is given without one.
func TestWholeGPUsInheritNoLimit(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	l.must(fakegpu.InheritLimit(l.machine(), 1, 1<<30))
	devices := l.kubelet.mustPrepare(l.claim("whole", []gpu.Device{l.whole(1)}))
	if got := l.run("misc", devices, "allocate=80000"); got != "allocated" {
		t.Errorf("%q", got)
	}
}

// ResourceSlices have whether the memory of time shares is limited, for CEL. A node that requires it offers no other shares.
func TestMemoryEnforcedIsPublished(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	hard := func(p published) error {
		for _, d := range p.devices {
			enforced, has := d.Attributes[wire.MemoryEnforced]
			switch {
			case has != (strings.HasSuffix(d.Name, "-timeshare") || strings.HasSuffix(d.Name, "-mps")):
				return fmt.Errorf("%s has the attribute: %t", d.Name, has)
			case has && (*enforced.StringValue == "hard") != strings.HasSuffix(d.Name, "-timeshare"): // the backend is misc
				return fmt.Errorf("%s: %s", d.Name, *enforced.StringValue)
			}
		}
		return nil
	}
	l.publishes("that shares are limited", func(p published) error { return errors.Join(hard(p), devices(l.offered())(p)) })
	l.agent.terminate()
	l.configure("sharing: {requireEnforcement: true}\n")
	l.node.run()
	l.publishes("no shares without limits", func(p published) error { return errors.Join(hard(p), devices(l.offered()-len(l.hardware.GPUs))(p)) })
	l.must(fakegpu.SetDriverVersion(t.Context(), l.machine(), "580.65.06"))
	l.publishes("no shares with an older driver", devices(l.offered()-2*len(l.hardware.GPUs)))
}

// The containers of MPS shares have the limits of their own claim: the multiprocessors by the namespace of the daemon, the memory by their control group. They
// reach only the socket of their claim, and their environment changes nothing.
func TestMPSSharesAreLimited(t *testing.T) {
	l := newLimits(t, fakegpu.Dmem)
	daemons, err := l.host.RunDaemons(context.Background(), shared.product)
	l.must(err)
	defer daemons.Stop()
	claim := func(name, memory, compute string) *drapb.Claim {
		return l.claim(name, []gpu.Device{l.shapeOf(0, gpu.MPS)}, takes(memory, compute))
	}
	const controllers = "misc,dmem"
	released := claim("small", "4Gi", "25")
	small, large := l.kubelet.mustPrepare(released), l.kubelet.mustPrepare(claim("large", "20Gi", "50"))
	for what, test := range map[string]struct {
		devices []*drapb.Device
		verb    string
		want    string
	}{
		"small":             {small, "share", "32 multiprocessors, 3840 MiB free"},
		"its memory":        {small, "memory", "3840 of 4096 MiB"},
		"all of it":         {small, "allocate=3840", "allocated"},
		"more":              {small, "allocate=3841", oom},
		"large":             {large, "share", "66 multiprocessors, 20224 MiB free"},
		"small, once again": {small, "share", "32 multiprocessors, 3840 MiB free"},
	} {
		if got := l.run(controllers, test.devices, test.verb); got != test.want {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
	l.kubelet.mustUnprepare(released)
	l.eventually("the namespace of the released claim is removed", func(context.Context) error {
		if folders := l.files(l.host.MPS(), "*/pipe/claims/*"); len(folders) != 1 {
			return fmt.Errorf("folders %q", folders)
		}
		return nil
	})
	if got := l.run(controllers, large, "share"); got != "66 multiprocessors, 20224 MiB free" {
		t.Errorf("the other claim: %q", got)
	}
}
