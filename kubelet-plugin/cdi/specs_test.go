package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const version = "580.65.06"

// host is a host with a driver and GPUs, whose root is a temporary folder.
type host struct {
	t testing.TB
	Config
}

func newHost(t testing.TB) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	top := t.TempDir()
	h := &host{t: t, Config: Config{
		Dir:   filepath.Join(top, "var/run/cdi"),
		Roots: driverroot.Roots{Host: top, Proc: top + "/proc", Sys: top + "/sys"},
		Hook:  "/opt/tessera/tessera-hook",
		Leads: func() bool { return true },
	}}
	h.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n122 nvidia-caps\n")
	h.write("/proc/driver/nvidia-caps/mig-minors", "config 1\nmonitor 2\ngpu1/gi13/access 255\ngpu1/gi13/ci0/access 256\n")
	h.write("/proc/sys/kernel/osrelease", "6.1.0\n")
	h.write("/proc/sys/kernel/random/boot_id", "3f0c9d1e\n")
	h.write(h.Hook, "")
	h.node("null", 1, 3)
	h.install(version)
	return h
}

// install creates the libraries of a driver version and loads its module.
func (h *host) install(version string) {
	h.write("/usr/lib64/libcuda.so."+version, "")
	h.write("/usr/lib64/libnvidia-ml.so."+version, "")
	h.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "+version+"  Sat\n")
}

func (h *host) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.Roots.Host, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) node(name string, major, minor uint32) {
	h.t.Helper()
	path := filepath.Join(h.Roots.Host, "dev", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.Roots.Host, path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) files() []string {
	h.t.Helper()
	entries, err := os.ReadDir(h.Dir)
	if err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func (h *host) common() string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Dir, commonFile))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// whole is a prepared whole GPU.
func whole(minor int) prepare.Prepared {
	return prepare.Prepared{
		Result: prepare.Result{Request: "r", Pool: "p", Device: fmt.Sprintf("gpu-%d", minor)},
		Use:    gpu.Device{GPU: "gpu-x", Use: gpu.Use{Shape: gpu.Whole}},
		GPU:    gpu.GPU{Minor: minor},
	}
}

func slice() prepare.Prepared {
	p := whole(1)
	p.Device, p.Use.Shape, p.Instance = "mig-0", gpu.MIG, &gpu.Instance{GI: 13, CI: 0}
	return p
}

// inject injects the devices into a container as a runtime does.
func (h *host) inject(ids ...string) *oci.Spec {
	h.t.Helper()
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(h.Dir), cdiapi.WithAutoRefresh(false))
	if err != nil {
		h.t.Fatal(err)
	}
	for path, errs := range cache.GetErrors() {
		h.t.Errorf("%s: %v", path, errors.Join(errs...))
	}
	container := &oci.Spec{Process: &oci.Process{}, Linux: &oci.Linux{}}
	if unresolved, err := cache.InjectDevices(container, ids...); err != nil {
		h.t.Fatalf("inject: %v %v", unresolved, err)
	}
	return container
}

// A container with two claims has the nodes of both, and the common edits once.
func TestTwoClaimsInOneContainer(t *testing.T) {
	h := newHost(t)
	// The library reads nodes at their host paths: here those of the machine that runs the test.
	h.Roots = driverroot.Roots{Host: "/", Proc: h.Roots.Proc, Sys: h.Roots.Sys, Driver: h.Roots.Host, Dev: h.Roots.Host}
	h.Hook = filepath.Join(h.Roots.Driver, h.Hook)
	specs := New(h.Config)
	first, err := specs.Write("claim-a", []prepare.Prepared{whole(0)})
	if err != nil {
		t.Fatal(err)
	}
	second, err := specs.Write("claim-b", []prepare.Prepared{slice()})
	if err != nil {
		t.Fatal(err)
	}
	container := h.inject(slices.Concat(first[0], second[0])...)

	var nodes []string
	for _, d := range container.Linux.Devices {
		nodes = append(nodes, fmt.Sprintf("%s %s %d:%d", d.Path, d.Type, d.Major, d.Minor))
	}
	slices.Sort(nodes)
	want := []string{
		"/dev/nvidia-caps/nvidia-cap255 c 122:255",
		"/dev/nvidia-caps/nvidia-cap256 c 122:256",
		"/dev/nvidia-uvm c 121:0",
		"/dev/nvidia-uvm-tools c 121:1",
		"/dev/nvidia0 c 120:0",
		"/dev/nvidia1 c 120:1",
		"/dev/nvidiactl c 120:255",
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	var granted []string
	for _, d := range container.Linux.Resources.Devices {
		granted = append(granted, fmt.Sprintf("%d:%d %s", *d.Major, *d.Minor, d.Access))
	}
	slices.Sort(granted)
	want = []string{"120:0 rwm", "120:1 rwm", "120:255 rwm", "121:0 rwm", "121:1 rwm", "122:255 r", "122:256 r"}
	if diff := cmp.Diff(want, granted); diff != "" {
		t.Errorf("cgroup (-want +got):\n%s", diff)
	}
	if got := len(container.Hooks.CreateContainer); got != 1 {
		t.Errorf("hooks: got %d, want one", got)
	}
	if !slices.Contains(container.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("environment: got %q", container.Process.Env)
	}
	if got := len(container.Mounts); got != 3 {
		t.Errorf("mounts: got %d, want the two libraries and that for NVIDIA's runtime", got)
	}
}

// The kernel creates no node of the driver, and a driver container has no nvidia-modprobe: the module is loaded, and the nodes that this process needs
// are made, before the specs are written. Where that fails, the claim gets no spec, and the error names the cause.
func TestWriteLoadsWhatIsMissing(t *testing.T) {
	h := newHost(t)
	h.write("/proc/devices", "Character devices:\n120 nvidia\n122 nvidia-caps\n")
	refusal := errors.New("modprobe nvidia-uvm: not found")
	calls, failing := 0, true
	h.Nodes = func() error {
		if calls++; failing {
			return refusal
		}
		h.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n122 nvidia-caps\n")
		return nil
	}
	specs := New(h.Config)
	if _, err := specs.Write("a", []prepare.Prepared{whole(0)}); !errors.Is(err, refusal) {
		t.Errorf("Write: %v, want %v", err, refusal)
	}
	if got := specs.Problem(); got != refusal.Error() {
		t.Errorf("problem %q, want %q", got, refusal)
	}
	failing = false
	for range 2 {
		if _, err := specs.Write("a", []prepare.Prepared{whole(0)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := specs.Problem(); got != "" {
		t.Errorf("problem %q after the specs were written", got)
	}
	if calls != 2 {
		t.Errorf("%d calls, want one for each time the driver was read", calls)
	}
	if text := h.common(); !strings.Contains(text, `"/dev/nvidia-uvm"`) {
		t.Errorf("the common spec has no nvidia-uvm: %s", text)
	}
}

func TestWriteListRemove(t *testing.T) {
	h := newHost(t)
	specs := New(h.Config)
	if claims, err := specs.List(); err != nil || len(claims) != 0 {
		t.Errorf("List before anything: got %v, %v", claims, err)
	}
	for _, uid := range []string{"a", "b"} {
		for range 2 {
			if _, err := specs.Write(uid, []prepare.Prepared{whole(0)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := specs.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := specs.Remove("a"); err != nil {
		t.Errorf("Remove of a missing spec: %v", err)
	}
	claims, err := specs.List()
	if diff := cmp.Diff([]string{"b"}, claims); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"tessera-claim-b.json", "tessera-common.json"}, h.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// The error names the missing path, and the claim gets no spec.
func TestWriteNamesWhatIsMissing(t *testing.T) {
	tests := map[string]struct {
		breakIt func(*host)
		device  prepare.Prepared
		want    string
	}{
		"a module": {func(h *host) { h.write("/proc/devices", "Character devices:\n120 nvidia\n") }, whole(0),
			"device node /dev/nvidia-uvm: nvidia-uvm is not among the kernel's character devices"},
		"a library":    {func(h *host) { h.remove("/usr/lib64/libcuda.so." + version) }, whole(0), "libcuda.so." + version},
		"the hook":     {func(h *host) { h.remove(h.Hook) }, whole(0), "/opt/tessera/tessera-hook"},
		"the instance": {func(h *host) { h.write("/proc/driver/nvidia-caps/mig-minors", "config 1\n") }, slice(), "gpu1/gi13/access"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.breakIt(h)
			specs := New(h.Config)
			_, err := specs.Write("a", []prepare.Prepared{test.device})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Write: got error %v, want one with %q", err, test.want)
			}
			if claims, err := specs.List(); err != nil || len(claims) != 0 {
				t.Errorf("List: got %v, %v, want no claim", claims, err)
			}
		})
	}
}

func TestNoDriver(t *testing.T) {
	h := newHost(t)
	h.remove("/proc/driver/nvidia/version")
	specs := New(h.Config)
	if err := specs.Refresh(); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("Refresh: got %v, want gpu.ErrNoDriver", err)
	}
	h.install(version)
	if err := specs.Refresh(); err != nil {
		t.Errorf("Refresh with a driver: %v", err)
	}
}

// The common spec follows the driver, is written again if it is missing, and is otherwise not changed.
func TestCommonSpecFollowsDriver(t *testing.T) {
	h := newHost(t)
	specs := New(h.Config)
	write := func() {
		t.Helper()
		if _, err := specs.Write("a", []prepare.Prepared{whole(0)}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if !strings.Contains(h.common(), version) {
		t.Fatalf("the common spec does not name the driver %s", version)
	}

	marked := []byte("not written again")
	if err := os.WriteFile(filepath.Join(h.Dir, commonFile), marked, 0o644); err != nil {
		t.Fatal(err)
	}
	write()
	if got := h.common(); got != string(marked) {
		t.Error("the common spec was written although nothing changed")
	}
	if err := specs.Refresh(); err != nil || !strings.Contains(h.common(), version) {
		t.Errorf("Refresh: %v, want the common spec as it should be", err)
	}

	h.remove("/var/run/cdi/" + commonFile)
	write()
	if !strings.Contains(h.common(), version) {
		t.Error("the lost common spec was not written again")
	}

	h.install("590.10.01")
	write()
	if got := h.common(); !strings.Contains(got, "libcuda.so.590.10.01") || strings.Contains(got, version) {
		t.Errorf("after the driver changed the common spec is %s", got)
	}
}

// Of two agents only the leading one writes the common spec; the other waits until it exists.
func TestOnlyLeaderWritesCommonSpec(t *testing.T) {
	h := newHost(t)
	h.Leads = func() bool { return false }
	follower := New(h.Config)
	if _, err := follower.Write("a", []prepare.Prepared{whole(0)}); err == nil {
		t.Fatal("Write without a common spec: got no error, want one")
	}
	h.Leads = func() bool { return true }
	if err := New(h.Config).Refresh(); err != nil {
		t.Fatal(err)
	}
	before := h.common()
	h.install("590.10.01")
	if _, err := follower.Write("a", []prepare.Prepared{whole(0)}); err != nil {
		t.Errorf("Write while another agent leads: %v", err)
	}
	if err := follower.Refresh(); err != nil {
		t.Errorf("Refresh while another agent leads: %v", err)
	}
	if h.common() != before {
		t.Error("the follower wrote the common spec")
	}
}

func TestTemporaryFilesAreRemoved(t *testing.T) {
	h := newHost(t)
	h.write("/var/run/cdi/.tessera-claim-a.json.1.tmp", "old")
	h.write("/var/run/cdi/.tessera-claim-b.json.2.tmp", "being written")
	h.write("/var/run/cdi/other.tmp", "another's")
	past := time.Now().Add(-time.Hour)
	for _, name := range []string{".tessera-claim-a.json.1.tmp", "other.tmp"} {
		if err := os.Chtimes(filepath.Join(h.Dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := New(h.Config).Refresh(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".tessera-claim-b.json.2.tmp", "other.tmp", "tessera-common.json"}, h.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestConcurrentClaims(t *testing.T) {
	h := newHost(t)
	specs := New(h.Config)
	var writes sync.WaitGroup
	for i := range 56 {
		writes.Go(func() {
			if _, err := specs.Write(fmt.Sprintf("claim-%d", i), []prepare.Prepared{slice()}); err != nil {
				t.Error(err)
			}
		})
	}
	writes.Wait()
	if claims, err := specs.List(); len(claims) != 56 || err != nil {
		t.Errorf("List: got %d claims, %v, want 56", len(claims), err)
	}
	if got := len(h.files()); got != 57 {
		t.Errorf("files: got %d, want 57: %v", got, h.files())
	}
}

// BenchmarkWriteRemove measures the cost of one claim's spec over its life.
func BenchmarkWriteRemove(b *testing.B) {
	h := newHost(b)
	specs := New(h.Config)
	devices := []prepare.Prepared{slice()}
	for b.Loop() {
		if _, err := specs.Write("a", devices); err != nil {
			b.Fatal(err)
		}
		if err := specs.Remove("a"); err != nil {
			b.Fatal(err)
		}
	}
}

// Additional device nodes are injected only for a claim that requests them, and only if the node has them.
func TestExtras(t *testing.T) {
	top := newHost(t)
	h := &host{t: t, Config: top.Config}
	h.Roots = driverroot.Roots{Host: "/", Proc: h.Roots.Proc, Sys: h.Roots.Sys, Driver: h.Roots.Host, Dev: h.Roots.Host}
	h.Hook = filepath.Join(h.Roots.Driver, h.Hook)
	specs := New(h.Config)
	plain, withExtras := whole(0), whole(1)
	withExtras.Settings.Extras = params.ExtrasOf(params.GDS, params.GDRCopy, params.RDMA)
	_, err := specs.Write("b", []prepare.Prepared{withExtras})
	if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "gds: no /dev/nvidia-fs") {
		t.Errorf("without the module: %v", err)
	}
	top.write("/proc/devices", "Character devices:\n120 nvidia\n121 nvidia-uvm\n122 nvidia-caps\n240 nvidia-fs\n241 gdrdrv\n")
	top.node("nvidia-fs0", 240, 0)
	top.node("nvidia-fs11", 240, 11)
	top.node("gdrdrv", 241, 0)
	top.node("infiniband/uverbs0", 231, 192)
	top.node("infiniband/rdma_cm", 10, 121)
	top.node("infiniband/umad0", 231, 0)
	ids := map[string][][]string{}
	for uid, device := range map[string]prepare.Prepared{"a": plain, "b": withExtras} {
		if ids[uid], err = specs.Write(uid, []prepare.Prepared{device}); err != nil {
			t.Fatal(err)
		}
	}
	nodes := func(ids []string) []string {
		var paths []string
		for _, d := range h.inject(ids...).Linux.Devices {
			paths = append(paths, d.Path)
		}
		slices.Sort(paths)
		return paths
	}
	if diff := cmp.Diff([]string{"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"}, nodes(ids["a"][0])); diff != "" {
		t.Errorf("a claim without extras (-want +got):\n%s", diff)
	}
	want := []string{
		"/dev/gdrdrv", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/nvidia-fs0", "/dev/nvidia-fs11",
		"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia1", "/dev/nvidiactl",
	}
	if diff := cmp.Diff(want, nodes(ids["b"][0])); diff != "" {
		t.Errorf("a claim with extras (-want +got):\n%s", diff)
	}
	top.remove("/dev/gdrdrv")
	top.node("gdrdrv", 99, 0)
	if _, err := specs.Write("b", []prepare.Prepared{withExtras}); err == nil || !strings.Contains(err.Error(), "the kernel's gdrdrv has 241") {
		t.Errorf("a node that outlived its module: %v", err)
	}
}

// The agent removes the versions of the hook program that the common spec does not name.
func TestHookPrograms(t *testing.T) {
	h := newHost(t)
	if programs, exists, err := HookPrograms(h.Dir); err != nil || exists || len(programs) != 0 {
		t.Errorf("without a spec: %q, %v, %v", programs, exists, err)
	}
	if err := New(h.Config).Refresh(); err != nil {
		t.Fatal(err)
	}
	if programs, exists, err := HookPrograms(h.Dir); err != nil || !exists || !slices.Equal(programs, []string{h.Hook}) {
		t.Errorf("with a spec: %q, %v, %v, want %s", programs, exists, err, h.Hook)
	}
	h.write("/var/run/cdi/"+commonFile, "{")
	if programs, exists, err := HookPrograms(h.Dir); err == nil || exists {
		t.Errorf("with a damaged spec: %q, %v, want an error", programs, exists)
	}
}

// hookRun is the outcome of a container with a hook that writes its environment into a file and then runs a command.
type hookRun struct {
	output, environment string
	err                 error
}

// runHook runs a container with runc. The hook is the one that the CDI library injects from the common spec, with another program, which writes its
// environment; and the container has variables that change what a dynamic linker loads.
func (h *host) runHook(hook oci.Hook, then string) hookRun {
	h.t.Helper()
	bundle := h.t.TempDir()
	environment := filepath.Join(bundle, "environment")
	program := filepath.Join(bundle, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n/usr/bin/env > "+environment+"\n"+then+"\n"), 0o755); err != nil {
		h.t.Fatal(err)
	}
	hook.Path = program
	type object = map[string]any
	config, err := json.Marshal(object{
		"ociVersion": "1.1.0",
		"process":    object{"args": []string{"/none"}, "cwd": "/", "env": []string{"LD_PRELOAD=/evil.so", "LD_AUDIT=/evil.so"}},
		"root":       object{"path": "rootfs", "readonly": true},
		"mounts":     []object{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"hooks":      object{"createContainer": []oci.Hook{hook}},
		"linux":      object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}}},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755), os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600)); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), "runc", "--root", filepath.Join(bundle, "runc"), "run", "--bundle", bundle, filepath.Base(filepath.Dir(bundle)))
	out, err := cmd.CombinedOutput()
	text, _ := os.ReadFile(environment) // missing if the hook did not run
	return hookRun{output: string(out), environment: string(text), err: err}
}

// A runtime gives the hook the environment of the spec and no other, and kills it after the timeout of the spec.
func TestHookEnvironmentAndTimeout(t *testing.T) {
	h := newHost(t)
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc")
	}
	// The library reads nodes at their host paths: here those of the machine that runs the test.
	h.Roots = driverroot.Roots{Host: "/", Proc: h.Roots.Proc, Sys: h.Roots.Sys, Driver: h.Roots.Host, Dev: h.Roots.Host}
	h.Hook = filepath.Join(h.Roots.Driver, h.Hook)
	ids, err := New(h.Config).Write("claim-a", []prepare.Prepared{whole(0)})
	if err != nil {
		t.Fatal(err)
	}
	hook := h.inject(ids[0]...).Hooks.CreateContainer[0]
	if hook.Timeout == nil || *hook.Timeout != hookTimeout {
		t.Fatalf("the injected hook has the timeout %v, want %d", hook.Timeout, hookTimeout)
	}
	got := h.runHook(hook, "exit 0")
	var names []string
	for line := range strings.Lines(got.environment) {
		name, _, _ := strings.Cut(line, "=")
		if name != "PWD" && name != "_" && name != "SHLVL" { // made by the shell of this test
			names = append(names, name)
		}
	}
	if !slices.Equal(names, []string{"PATH"}) {
		t.Errorf("the hook's environment: %q, want PATH; %s", got.environment, got.output)
	}
	hook.Timeout = new(1)
	if got := h.runHook(hook, "exec sleep 3600"); got.err == nil || !strings.Contains(got.output, "hook ran past specified timeout") {
		t.Errorf("a hook that does not end: %v %q", got.err, got.output)
	}
}

// A device whose containers need a limit of GPU memory has the hook for it, with its position in the claim; others have none.
func TestLimitHooks(t *testing.T) {
	h := newHost(t)
	h.Limits = "/var/lib/limits"
	limited, plain := whole(0), whole(1)
	limited.GPU.Limiter = gpu.LimitedByMisc
	if _, err := New(h.Config).Write("uid", []prepare.Prepared{plain, limited}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(h.Dir, claimFile("uid")))
	if err != nil {
		t.Fatal(err)
	}
	var spec cdispec.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	if got := spec.Devices[0].ContainerEdits.Hooks; len(got) != 0 {
		t.Errorf("a device without a limit has the hook %+v", got[0])
	}
	want := []string{"tessera-hook", "limit-memory", "--sockets", "/var/lib/limits", "--device", "uid/1"}
	got := spec.Devices[1].ContainerEdits.Hooks
	if len(got) != 1 || got[0].HookName != "createRuntime" || got[0].Path != h.Hook || len(got[0].Env) == 0 || got[0].Timeout == nil {
		t.Fatalf("hooks %+v", got)
	}
	if diff := cmp.Diff(want, got[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}
