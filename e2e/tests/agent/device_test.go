package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// control returns the device nodes of every container with a GPU.
func control() []string {
	return []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}
}

func TestWholeGPU(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, k := n.run()
	a.waitReady()
	claim := n.claim("whole", []gpu.Device{n.whole(1)})

	devices := k.mustPrepare(claim)
	if len(devices) != 1 || devices[0].GetDeviceName() != n.whole(1).GPU || !slices.Equal(devices[0].GetRequestNames(), []string{"r0"}) {
		t.Errorf("answer: %v", devices)
	}
	c := n.container(devices)
	if diff := cmp.Diff(sorted(append(control(), "/dev/nvidia1")), c.nodes()); diff != "" {
		t.Errorf("device nodes (-want +got):\n%s", diff)
	}
	for _, library := range []string{"libcuda.so.", "libnvidia-ml.so."} {
		if path := "/usr/lib/x86_64-linux-gnu/" + library + catalog.DriverVersion; !c.mounts(path) {
			t.Errorf("%s is not mounted", path)
		}
	}
	if !slices.Contains(c.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("environment: %v", c.Process.Env)
	}
	for _, hook := range c.Hooks.CreateContainer {
		if err := exec.Command(hook.Path, "no-such-hook").Run(); err != nil {
			t.Errorf("hook program: %v", err)
		}
	}
	if again := k.mustPrepare(claim); cmp.Diff(fmt.Sprint(devices), fmt.Sprint(again)) != "" {
		t.Errorf("prepared again: %v, want %v", again, devices)
	}
	k.mustUnprepare(claim)
	k.mustUnprepare(claim)
	n.isClean()
	a.terminate()
	if left := n.files(n.dir, "*/*.sock", "*/*/*.sock", "p/*/instances/pod"); len(left) > 0 {
		t.Errorf("after the agent: %v", left)
	}
}

// TestWithoutDeviceNodesOfTheHost: a driver container loads modules and makes no device node (nvidia-driver of NVIDIA: modprobe,
// --no-nvidia-modprobe). The agent makes those that it opens itself, and containers need none of them.
func TestWithoutDeviceNodesOfTheHost(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	dev := filepath.Join(fakegpu.DevRoot(n.machine()), "dev")
	if nodes := n.files(dev, "*"); len(nodes) > 0 {
		t.Fatalf("nodes before the agent: %v", nodes)
	}
	a, k := n.run()
	a.waitReady()
	for _, name := range []string{"nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"} {
		n.must(os.Remove(filepath.Join(dev, name))) // made by the agent, and needed by no container
	}
	claim := n.claim("whole", []gpu.Device{n.whole(1)})
	var got []string
	for _, d := range n.container(k.mustPrepare(claim)).Linux.Devices {
		got = append(got, fmt.Sprintf("%s %s %d:%d %o", d.Path, d.Type, d.Major, d.Minor, *d.FileMode))
	}
	want := []string{
		"/dev/nvidia-modeset c 120:254 666", "/dev/nvidia-uvm c 121:0 666", "/dev/nvidia-uvm-tools c 121:1 666",
		"/dev/nvidia1 c 120:1 666", "/dev/nvidiactl c 120:255 666",
	}
	if diff := cmp.Diff(want, sorted(got)); diff != "" {
		t.Errorf("device nodes (-want +got):\n%s", diff)
	}
	k.mustUnprepare(claim)
	n.isClean()
}

func TestMIG(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	_, k := n.run()
	claim := n.claim("slices", []gpu.Device{n.slice(0, 9, 4), n.slice(0, 19, 2), n.slice(1, 14, 2)})

	c := n.container(k.mustPrepare(claim))
	state := n.truth()
	want := append(control(), "/dev/nvidia0", "/dev/nvidia1")
	for _, g := range state.GPUs {
		for _, i := range g.Instances {
			minor := n.capability(fmt.Sprintf("gpu%d/gi%d/access", g.Index, i.ID))
			want = append(want, minor, n.capability(fmt.Sprintf("gpu%d/gi%d/ci%d/access", g.Index, i.ID, i.Computes[0].ID)))
		}
	}
	if diff := cmp.Diff(sorted(want), c.nodes()); diff != "" {
		t.Errorf("device nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"GPU 0: 19 at 2", "GPU 0: 9 at 4", "GPU 1: 14 at 2"}, placements(state)); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	for _, g := range state.GPUs {
		for _, i := range g.Instances {
			if !strings.Contains(n.record(claim.GetUid()), i.Computes[0].UUID) {
				t.Errorf("the record does not name %s", i.Computes[0].UUID)
			}
		}
	}
	k.mustUnprepare(claim)
	n.isClean()
}

// capability returns the path of the device node of a MIG capability.
func (n *node) capability(name string) string {
	n.t.Helper()
	table, err := os.ReadFile(filepath.Join(fakegpu.ProcRoot(n.machine()), "driver/nvidia-caps/mig-minors"))
	n.must(err)
	for line := range strings.Lines(string(table)) {
		if minor, ok := strings.CutPrefix(line, name+" "); ok {
			return "/dev/nvidia-caps/nvidia-cap" + strings.TrimSpace(minor)
		}
	}
	n.t.Fatalf("no capability %s", name)
	return ""
}

// placements returns every instance of the machine that has a compute instance.
func placements(state fakegpu.State) []string {
	var names []string
	for _, g := range state.GPUs {
		for _, i := range g.Instances {
			name := fmt.Sprintf("GPU %d: %d at %d", g.Index, i.Profile, i.Start)
			if len(i.Computes) != 1 {
				name += fmt.Sprintf(" with %d computes", len(i.Computes))
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
