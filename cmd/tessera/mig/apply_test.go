//go:build linux && cgo

package mig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// codes of NVML (nvml.h) that the fake is told to answer.
const (
	inUse        = 19
	noPermission = 4
)

const driver = "gpu.tessera.dev"

// host is a fake machine on which the verb runs.
type host struct {
	t   *testing.T
	dir string
	Host
}

func newHost(t *testing.T, machine string) host {
	t.Helper()
	h := host{t: t, dir: filepath.Join(t.TempDir(), "machine")}
	if err := fakegpu.InstallDriver(t.Context(), h.dir, fakegpu.Spec{Machine: machine}); err != nil {
		t.Fatal(err)
	}
	h.Host = Host{Root: "/", Proc: "/proc", Sys: t.TempDir(), Dev: t.TempDir(), Plugins: t.TempDir(), Drivers: []string{driver, "gpu.nvidia.com"}}
	m, err := gputest.FindMachine(machine)
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range m.GPUs {
		model, err := gputest.FindModel(slot.Model)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(h.Sys, "bus/pci/devices", slot.PCI)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n", "device": fmt.Sprintf("0x%04x\n", uint32(model.PCIDevice)>>16)} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func (h host) open(ctx context.Context) (Node, error) {
	return connect(ctx, h.Host, nvml.Config{Library: func() (string, error) { return fakegpu.Library(h.dir), nil }, SysRoot: h.Sys})
}

// choose writes the layout into a file.
func (h host) choose(text string) choice {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "layouts.yaml")
	if err := os.WriteFile(path, []byte("version: v1\nmig-configs:\n  a:\n"+text+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return choice{file: path}
}

// apply applies the layout and returns what the user reads.
func (h host) apply(text string) (string, error) {
	h.t.Helper()
	var out bytes.Buffer
	err := apply(h.t.Context(), h.open, h.choose(text), &out)
	return out.String(), err
}

// assert returns why the layout is not in effect.
func (h host) assert(text string) error {
	h.t.Helper()
	return assert(h.t.Context(), h.open, h.choose(text), &bytes.Buffer{})
}

// look reads the machine.
func (h host) look() machine {
	h.t.Helper()
	n, err := h.open(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer n.Close()
	m, _, err := n.Look(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// record writes the record of a claim that holds the use of a GPU, as the agent does.
func (h host) record(gpuName string, use gpu.Use) {
	h.t.Helper()
	store, err := checkpoint.Open(filepath.Join(h.Plugins, driver, claimsFolder), func(string, error) {})
	if err != nil {
		h.t.Fatal(err)
	}
	r := prepare.Record{
		Ref: prepare.Ref{UID: "uid-1", Namespace: "demo", Name: "train"}, State: prepare.Ready,
		Wanted: []prepare.Wanted{{Result: prepare.Result{Request: "gpu", Pool: "p", Device: "d"}, Use: gpu.Device{GPU: gpuName, Use: use}}},
	}
	if err := store.Save(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) fail(function string, code, count uint32) {
	h.t.Helper()
	if err := fakegpu.Fail(h.dir, function, code, count); err != nil {
		h.t.Fatal(err)
	}
}

func render(t *testing.T, c Config) string {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestApply goes through the life of a layout: made, made again, changed, exported, ended.
func TestApply(t *testing.T) {
	h := newHost(t, "h100x2")
	const balanced = "  - {device-filter: 0x233010DE, devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}}"
	if err := h.assert(balanced); err == nil || !strings.Contains(err.Error(), "GPU 0 (gpu-0000-1b-00-0): MIG is disabled, must be enabled") {
		t.Errorf("before: %v", err)
	}
	out, err := h.apply(balanced)
	if err != nil || !strings.Contains(out, "GPU 1 (gpu-0000-43-00-0): MIG enabled create 2g.20gb at 0 1g.10gb at 2 1g.10gb at 3 3g.40gb at 4") || !strings.Contains(out, "The layout is in effect.") {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	if err := h.assert(balanced); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	before := h.look().node.GPUs[0].Instances
	if out, err := h.apply(balanced); err != nil || out != "The layout was in effect already: nothing was changed.\n" {
		t.Errorf("again: %v\n%s", err, out)
	}
	if diff := cmp.Diff(before, h.look().node.GPUs[0].Instances); diff != "" {
		t.Errorf("again (-before +after):\n%s", diff)
	}

	var text bytes.Buffer
	if err := export(t.Context(), h.open, exporting{label: "a", form: Starts, format: "yaml", out: &text, errOut: &bytes.Buffer{}}); err != nil {
		t.Fatal(err)
	}
	want := "mig-configs:\n  a:\n  - devices: all\n    mig-devices:\n      1g.10gb:\n      - 2\n      - 3\n      2g.20gb:\n      - 0\n      3g.40gb:\n      - 4\n    mig-enabled: true\nversion: v1\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("export (-want +got):\n%s", diff)
	}

	if out, err := h.apply("  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1, 1g.10gb+me: 1}}"); err != nil || !strings.Contains(out, "destroy 3 create 1g.10gb+me at") {
		t.Errorf("another layout: %v\n%s", err, out)
	}
	stayed := slices.ContainsFunc(h.look().node.GPUs[0].Instances, func(i gpu.Instance) bool { return i.UUID == before[3].UUID })
	if !stayed {
		t.Error("the 3g.40gb that both layouts want was made anew")
	}
	if out, err := h.apply("  - {devices: all, mig-enabled: false}"); err != nil {
		t.Errorf("end: %v\n%s", err, out)
	}
	if g := h.look().node.GPUs[0]; g.Mode != gpu.ModeDisabled || len(g.Instances) != 0 {
		t.Errorf("end: MIG %v, %v", g.Mode, g.Instances)
	}
}

// TestApplyEveryMachine puts the largest and the smallest profile of each model onto it.
func TestApplyEveryMachine(t *testing.T) {
	for _, machine := range []string{"h100x2", "rtxpro6000x4", "a30x4l40sx4", "t4x1"} {
		h := newHost(t, machine)
		for n, g := range h.look().node.GPUs {
			if g.Geometry.Slices() == 0 || g.Mode == gpu.ModeDisabled && !g.TogglesMIG() {
				continue
			}
			profiles := g.Geometry.Profiles()
			for _, p := range []gpu.Profile{profiles[0], profiles[len(profiles)-1]} {
				text := fmt.Sprintf("  - {devices: [%d], mig-enabled: true, mig-devices: {%q: %d}}", n, p.Name, p.MaxInstances)
				if out, err := h.apply(text); err != nil {
					t.Errorf("%s: %s: %v\n%s", machine, text, err, out)
				}
				if got := h.look().node.GPUs[n].Instances; len(got) != p.MaxInstances {
					t.Errorf("%s: %s: %v", machine, text, got)
				}
			}
		}
	}
}

// TestApplyRefuses checks that what is refused changes nothing, on no GPU.
func TestApplyRefuses(t *testing.T) {
	const two = "  - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}"
	tests := map[string]struct {
		prepare func(h host)
		text    string
		want    []string
	}{
		"a claim's GPU": {func(h host) { h.record("gpu-0000-43-00-0", gpu.Use{Shape: gpu.Whole}) }, two,
			[]string{"nothing was changed", "GPU 1 (gpu-0000-43-00-0): claim demo/train holds gpu here"}},
		"a claim's instance": {func(h host) {
			must(t, h, "  - {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: [4]}}")
			h.record("gpu-0000-43-00-0", gpu.Use{Shape: gpu.MIG, Placement: at(9, 4, 4)})
		}, two, []string{"claim demo/train holds profile 9 at slices 4-7 here: end its pods first"}},
		"a record that cannot be read": {func(h host) {
			folder := filepath.Join(h.Plugins, driver, claimsFolder)
			if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "uid-2.json"), []byte("{"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, two, []string{"a claim's record is unreadable, so nobody knows what it holds"}},
		"no mode":    {func(h host) { h.fail("nvmlDeviceSetMigMode", noPermission, 1) }, two, []string{"turn MIG on: nvmlDeviceSetMigMode"}},
		"no place":   {func(host) {}, "  - {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 3}}", []string{"no order of placements fits"}},
		"not a file": {func(host) {}, "  - {}", []string{"read the layouts"}},
	}
	for name, test := range tests {
		h := newHost(t, "h100x2")
		test.prepare(h)
		before := state(t, h)
		_, err := h.apply(test.text)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if diff := cmp.Diff(before, state(t, h)); diff != "" {
			t.Errorf("%s: changed all the same (-before +after):\n%s", name, diff)
		}
	}
}

func must(t *testing.T, h host, text string) {
	t.Helper()
	if out, err := h.apply(text); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// state is what the hardware holds, without ids that change when an instance is made again.
func state(t *testing.T, h host) []string {
	t.Helper()
	n, err := h.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	opened, ok := n.(*node)
	if !ok {
		t.Fatalf("the node is a %T", n)
	}
	read, err := opened.session.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, g := range read.GPUs {
		lines = append(lines, fmt.Sprint(g.Name(), " ", g.Mode))
		for _, i := range g.Instances {
			lines = append(lines, fmt.Sprint(i.Placement, " complete ", i.CI != gpu.NoCompute))
		}
	}
	return lines
}

// TestBusy lets the driver say, at each call in turn, that a process is in the way: the GPU is as before,
// and the user reads who it is.
func TestBusy(t *testing.T) {
	h := newHost(t, "h100x2")
	must(t, h, "  - {devices: [0], mig-enabled: true, mig-devices: {2g.20gb: 3}}")
	before := state(t, h)
	// A device node that this very process has open stands for the GPU's.
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := errors.Join(os.Mkdir(filepath.Join(h.Dev, "dev"), 0o755), os.Symlink("/dev/null", filepath.Join(h.Dev, "dev/nvidia0")), os.Symlink("/dev/null", filepath.Join(h.Dev, "dev/nvidiactl"))); err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{"nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy", "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"} {
		h.fail(function, inUse, 1)
		_, err := h.apply("  - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}")
		if !errors.Is(err, gpu.ErrBusy) || !strings.Contains(err.Error(), "GPU 0 (gpu-0000-1b-00-0): ") || !strings.Contains(err.Error(), "drain the node, and try again") {
			t.Errorf("%s: %v", function, err)
		}
		if diff := cmp.Diff(before, state(t, h)); diff != "" {
			t.Errorf("%s: not as it was (-before +after):\n%s", function, diff)
		}
	}
}

func TestClients(t *testing.T) {
	proc, dev := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Symlink("/dev/null", filepath.Join(dev, "nvidia3")),
		os.MkdirAll(filepath.Join(proc, "4242/fd"), 0o755), os.WriteFile(filepath.Join(proc, "4242/comm"), []byte("python3\n"), 0o644),
		os.Symlink("/dev/null", filepath.Join(proc, "4242/fd/7")),
		os.MkdirAll(filepath.Join(proc, "77/fd"), 0o755), os.Symlink("/dev/zero", filepath.Join(proc, "77/fd/0")),
		os.MkdirAll(filepath.Join(proc, "sys"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	c := clients{proc: proc, dev: dev}
	if diff := cmp.Diff([]string{"python3 (pid 4242)"}, c.Of(gpu.GPU{Minor: 3})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := c.Of(gpu.GPU{Minor: 4}); got != nil {
		t.Errorf("a GPU without a device node: %v", got)
	}
}

// TestAgentAtWork holds the lock that an agent takes for a claim: apply waits, and says for what.
func TestAgentAtWork(t *testing.T) {
	h := newHost(t, "h100x2")
	folder := filepath.Join(h.Plugins, driver, locksFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	agent, err := lock(t.Context(), filepath.Join(folder, "gpu-0000-43-00-0.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.WriteAt([]byte("claim demo/train"), 0); err != nil {
		t.Fatal(err)
	}
	n, err := h.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	both := []string{"gpu-0000-1b-00-0", "gpu-0000-43-00-0"}
	if _, err := n.Lock(ctx, both); err == nil || !strings.Contains(err.Error(), `wait for gpu-0000-43-00-0: the agent works on it for "claim demo/train"`) {
		t.Errorf("while the agent works: %v", err)
	}
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}
	unlock, err := n.Lock(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	n.Close()
	must(t, h, "  - {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1}}")
}

func TestNoDriver(t *testing.T) {
	_, err := open(t.Context(), Host{Root: t.TempDir(), Proc: t.TempDir(), Sys: t.TempDir()})
	if !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), "run it as root on a GPU node") {
		t.Errorf("got %v", err)
	}
}
