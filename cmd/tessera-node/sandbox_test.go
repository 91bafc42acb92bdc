package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/dra-driver/inventory"
	"github.com/tessera-gpu/tessera/dra-driver/pci"
	"github.com/tessera-gpu/tessera/e2e/fake/fakevfio"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
	"github.com/tessera-gpu/tessera/kubelet-plugin/vfio"
)

// machine is a node whose GPUs are for virtual machines: files that stay, and a kernel that behaves.
type machine struct {
	top    string
	kernel *fakevfio.Kernel
	config v1alpha1.NodeConfigSpec
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	config, err := v1alpha1.Load([]byte("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nshapes: [vfio]\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := &machine{top: t.TempDir(), kernel: fakevfio.Card(), config: config.NodeConfigSpec}
	for address, device := range h.kernel.Devices {
		folder := filepath.Join(h.top, "sys/bus/pci/devices", address)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"vendor": "0x10de", "class": device.Class, "device": "0x2330", "numa_node": "0"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(h.top, "dev/vfio"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"vfio", "7", "31"} {
		if err := unix.Mknod(filepath.Join(h.top, "dev/vfio", name), unix.S_IFCHR|0o600, int(unix.Mkdev(240, uint32(i)))); err != nil { //nolint:gosec // three nodes
			t.Fatal(err)
		}
	}
	return h
}

// agent joins the parts as the agent does, anew over the same host.
func (h *machine) agent(t *testing.T, observer prepare.Observer) (*prepare.Preparer, *inventory.Inventory) {
	t.Helper()
	records, err := checkpoint.Open(nil, filepath.Join(h.top, "claims"), func(path string, err error) { t.Errorf("%s: %v", path, err) })
	if err != nil {
		t.Fatal(err)
	}
	bus := pci.New(filepath.Join(h.top, "sys"), func(address string) (string, error) {
		group, err := vfio.Find(h.kernel, address)
		return group.ID, err
	})
	known := inventory.New(t.Context(), inventory.Config{Node: "node1", Hardware: bus, Records: records})
	specs := cdi.New(cdi.Config{
		Dir: filepath.Join(h.top, "cdi"), Roots: driverroot.Roots{Host: h.top, Proc: h.top + "/proc", Sys: h.top + "/sys"}, Leads: func() bool { return true },
	})
	p, err := prepare.New(prepare.Config{
		Inventory: known, Instances: bus, Modes: bus, Passthrough: passthrough{vfio.New(h.kernel, h.kernel, h.kernel), known}, Shares: h.config.Shares,
		Records: records, Specs: specs, Claims: noConsumers{}, BootID: "boot", LocksDir: filepath.Join(h.top, "locks"), Observer: observer,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, known
}

// noConsumers has claims.
type noConsumers struct{}

func (noConsumers) Running(context.Context) map[prepare.Ref]bool    { return nil }
func (noConsumers) Held(context.Context, prepare.Ref) (bool, error) { return false, nil }
func (noConsumers) Allocated(context.Context, prepare.Ref) (prepare.Claim, error) {
	return prepare.Claim{}, prepare.ErrNoClaim
}

// claim is what an allocator makes of what the node publishes, read back as the agent does.
func (h *machine) claim(t *testing.T, node gpu.Node, device string) prepare.Claim {
	t.Helper()
	offer, err := h.config.Offer()
	if err != nil {
		t.Fatal(err)
	}
	options := wire.Options{Driver: h.config.DriverName, Offer: offer}
	pool, err := wire.Encode(node, options)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, slice := range pool.Slices {
		for _, d := range slice.Devices {
			names = append(names, d.Name)
		}
	}
	if diff := cmp.Diff([]string{"gpu-0000-01-00-0-vfio", "gpu-0000-17-00-0-vfio"}, names); diff != "" {
		t.Fatalf("published (-want +got):\n%s", diff)
	}
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: h.config.DriverName, Pool: pool.Name, Device: device}
	use, err := wire.Decode(result, node, options)
	if err != nil {
		t.Fatal(err)
	}
	return prepare.Claim{
		Ref:    prepare.Ref{UID: "uid", Namespace: "ns", Name: "vm"},
		Wanted: []prepare.Wanted{{Result: prepare.Result{Request: "gpu", Pool: pool.Name, Device: device}, Use: use}},
	}
}

const display = "gpu-0000-01-00-0-vfio"

func TestSandbox(t *testing.T) {
	h := newMachine(t)
	before := h.kernel.State()
	p, known := h.agent(t, nil)
	c := h.claim(t, known.Node(), display)
	answers, err := p.Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 1 || answers[0].IOMMUGroup != "7" || len(answers[0].CDIDevices) != 1 {
		t.Errorf("answers: %+v", answers)
	}
	bound := map[string]string{
		"0000:00:01.0": "pcieport/", "0000:01:00.0": "vfio-pci/vfio-pci", "0000:01:00.1": "vfio-pci/vfio-pci", "0000:17:00.0": "/",
	}
	if diff := cmp.Diff(bound, h.kernel.State()); diff != "" {
		t.Errorf("bound (-want +got):\n%s", diff)
	}
	// While the virtual machine runs the claim stays, over an agent's restart too.
	h.kernel.Open["7"] = true
	p, _ = h.agent(t, nil)
	if _, err := p.Prepare(t.Context(), c); err != nil {
		t.Errorf("a second pod: %v", err)
	}
	if err := p.Unprepare(t.Context(), c.Ref); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("unprepare while it runs: %v", err)
	}
	if diff := cmp.Diff(bound, h.kernel.State()); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	h.kernel.Open["7"] = false
	if err := p.Unprepare(t.Context(), c.Ref); err != nil {
		t.Fatal(err)
	}
	h.clean(t, "at the end", before)
}

// clean looks for what is left of a claim.
func (h *machine) clean(t *testing.T, when string, before map[string]string) {
	t.Helper()
	if diff := cmp.Diff(before, h.kernel.State()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	for _, folder := range []string{"claims", "cdi"} {
		left, err := filepath.Glob(filepath.Join(h.top, folder, "*uid*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, error %v", when, left, err)
		}
	}
}

// TestSandboxCrashes ends the agent before and after every step of preparing and unpreparing, and at every write to sysfs. The next one prepares the
// claim and takes it back, or takes it back at once.
func TestSandboxCrashes(t *testing.T) {
	tried := 0
	for _, during := range []string{"prepare", "unprepare"} {
		for _, kind := range []string{"step", "write"} {
			for number := 1; ; number++ {
				over := false
				for _, then := range []string{"prepare", "unprepare"} {
					name := fmt.Sprintf("%s killed at %s %d, then %s", during, kind, number, then)
					over = !crash(t, name, during, kind, number, then)
				}
				if over {
					break
				}
				tried++
			}
		}
	}
	t.Logf("%d crashes", tried)
	if tried < 30 {
		t.Errorf("%d crashes: steps or writes are missing", tried)
	}
}

// killed is what a process leaves behind that is killed.
type killed struct{}

// crash tries one crash, and reports whether there was a step or write of that number.
func crash(t *testing.T, name, during, kind string, number int, then string) bool {
	t.Helper()
	h := newMachine(t)
	before := h.kernel.State()
	p, known := h.agent(t, nil)
	c := h.claim(t, known.Node(), display)
	if during == "unprepare" {
		if _, err := p.Prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	h.kernel.Revive()
	count := 0
	p, _ = h.agent(t, func(prepare.When, prepare.Ref, prepare.Step) {
		if count++; kind == "step" && count == number {
			panic(killed{})
		}
	})
	if kind == "write" {
		h.kernel.Faults[number] = fakevfio.ErrCrash
	}
	died := attempt(t, p, c, during)
	h.kernel.Revive()
	p, _ = h.agent(t, nil)
	if then == "prepare" {
		if answers, err := p.Prepare(t.Context(), c); err != nil || answers[0].IOMMUGroup != "7" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := p.Unprepare(t.Context(), c.Ref); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	h.clean(t, name, before)
	return died
}

// attempt reports whether the agent died, or the kernel did under it.
func attempt(t *testing.T, p *prepare.Preparer, c prepare.Claim, during string) (died bool) {
	t.Helper()
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case killed:
			died = true
		default:
			panic(cause)
		}
	}()
	var err error
	if during == "prepare" {
		_, err = p.Prepare(t.Context(), c)
	} else {
		err = p.Unprepare(t.Context(), c.Ref)
	}
	return err != nil
}
