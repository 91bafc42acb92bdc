package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// published is the node's pool in the API server.
type published struct {
	devices  []resourceapi.Device
	counters map[string]map[string]resourceapi.Counter
}

func (n *node) selector() metav1.ListOptions { return n.host.Selector() }

// pool returns the node's pool. An incomplete pool is an error.
func (n *node) pool(ctx context.Context) (published, error) {
	p := published{counters: map[string]map[string]resourceapi.Counter{}}
	slices, err := n.host.Pool(ctx)
	if err != nil {
		return p, err
	}
	for _, s := range slices {
		p.devices = append(p.devices, s.Spec.Devices...)
		for _, set := range s.Spec.SharedCounters {
			p.counters[set.Name] = set.Counters
		}
	}
	return p, nil
}

// publishes waits until the check of the pool succeeds.
func (n *node) publishes(what string, check func(published) error) {
	n.t.Helper()
	n.eventually(what, func(ctx context.Context) error {
		p, err := n.pool(ctx)
		if err != nil {
			return err
		}
		return check(p)
	})
}

// devices returns a check for the number of published devices.
func devices(want int) func(published) error {
	return func(p published) error {
		if len(p.devices) != want {
			return fmt.Errorf("%d devices, want %d", len(p.devices), want)
		}
		return nil
	}
}

// offered returns the number of devices of the machine with the default configuration.
func (n *node) offered() int {
	n.t.Helper()
	offer, err := v1alpha1.Default().Offer()
	n.must(err)
	return len(n.hardware.Devices(offer))
}

func TestMachines(t *testing.T) {
	t.Parallel()
	for _, machine := range []string{"t4x1", "mixed16", "a30x4l40sx4"} {
		t.Run(machine, func(t *testing.T) {
			n := newNode(t, machine)
			a, k := n.run()
			a.waitReady()
			n.publishes("every device", devices(n.offered()))
			for i, g := range n.hardware.GPUs {
				use := n.hardware.Devices(gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG}})
				use = slices.DeleteFunc(use, func(d gpu.Device) bool { return d.GPU != g.Name() })
				claim := n.claim(fmt.Sprint("first-", i), use[:1])
				n.container(k.mustPrepare(claim))
				k.mustUnprepare(claim)
			}
			n.isClean()
		})
	}
}

func TestSlicesComeBackAfterKubeletsRestart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, _ := n.run()
	a.waitReady()
	n.publishes("every device", devices(n.offered()))
	a.metric("tessera_resourceslices_published 2")
	n.promptly("to bring the slices back", func() {
		// Kubelet does this when it starts.
		n.must(shared.client.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, n.selector()))
		n.publishes("every device again", devices(n.offered()))
	}, func() {})
}

func TestNoGPU(t *testing.T) {
	t.Parallel()
	n := emptyNode(t, "h100x2")
	for path, text := range map[string]string{
		filepath.Join(fakegpu.ProcRoot(n.machine()), "sys/kernel/random/boot_id"): "5b1c1b5e-0000-4000-8000-000000000001\n",
		filepath.Join(fakegpu.DriverRoot(n.machine()), "etc/os-release"):          "",
		filepath.Join(fakegpu.SysRoot(n.machine()), "bus/pci/drivers_autoprobe"):  "1\n",
	} {
		n.must(os.MkdirAll(filepath.Dir(path), 0o755))
		n.must(os.WriteFile(path, []byte(text), 0o644))
	}
	a, _ := n.run()
	a.waitReady()
	n.publishes("no device", devices(0))
	a.metric("tessera_gpus 0")
	a.terminate()
}

// TestAPIServerAway starts an agent that cannot reach the API server: prepared claims persist and can be unprepared.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, k := n.run()
	claim, later := n.claim("early", []gpu.Device{n.slice(0, 19, 0)}), n.claim("late", []gpu.Device{n.whole(1)})
	k.mustPrepare(claim)
	a.kill()
	config, err := clientcmd.LoadFromFile(shared.kubeconfig)
	n.must(err)
	port, err := harness.HoldPort()
	n.must(err)
	t.Cleanup(port.Release)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + port.Address
	}
	n.kubeconfig = filepath.Join(n.dir, "away")
	n.must(clientcmd.WriteToFile(*config, n.kubeconfig))

	a, k = n.run()
	if _, err := k.prepare(later); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("prepare without an API server: %v", err)
	}
	n.container([]*drapb.Device{{CdiDeviceIds: n.spec(claim)}})
	k.mustUnprepare(claim)
	n.isClean()
	a.kill()
}

// spec returns the IDs of the devices in the claim's CDI spec.
func (n *node) spec(claim *drapb.Claim) []string {
	n.t.Helper()
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(n.cdi()), cdiapi.WithAutoRefresh(false))
	n.must(err)
	var ids []string
	for _, id := range cache.ListDevices() {
		if strings.Contains(id, claim.GetUid()) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		n.t.Errorf("claim %s has no CDI device", claim.GetName())
	}
	return ids
}

func TestDriverComesLater(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.must(fakegpu.RemoveDriver(n.machine()))
	a, k := n.run()
	a.waitReady()
	n.publishes("no device", devices(0))
	claim := n.claim("early", []gpu.Device{n.whole(0)})
	if _, err := k.prepare(claim); err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("prepare without a driver: %v", err)
	}
	k.mustUnprepare(claim)

	n.promptly("to find the driver's devices without a restart", func() {
		n.must(fakegpu.RestoreDriver(n.machine()))
		n.publishes("the driver's devices", devices(n.offered()))
	}, func() {
		n.must(fakegpu.RemoveDriver(n.machine()))
		n.publishes("no device again", devices(0))
	})
	n.container(k.mustPrepare(claim))
	k.mustUnprepare(claim)
	n.isClean()
}

func TestDriverVersionChanges(t *testing.T) {
	t.Parallel()
	const next = "580.82.07"
	n := newNode(t, "h100x2")
	a, k := n.run()
	a.waitReady()
	running := n.claim("running", []gpu.Device{n.whole(1)})
	before := k.mustPrepare(running)
	n.must(fakegpu.SetDriverVersion(t.Context(), n.machine(), next))
	n.publishes("the new version", func(p published) error {
		for _, d := range p.devices {
			if d.Name == wire.DeviceName(n.whole(0)) && d.Attributes[wire.DriverVersion].VersionValue != nil &&
				*d.Attributes[wire.DriverVersion].VersionValue == "580.82.7" {
				return nil
			}
		}
		return fmt.Errorf("GPU 0 does not say %s", next)
	})
	n.eventually("a container that starts again gets the new libraries", func(context.Context) error {
		if !n.container(before).mounts("/usr/lib/x86_64-linux-gnu/libcuda.so." + next) {
			return fmt.Errorf("libcuda.so.%s is not mounted", next)
		}
		return nil
	})
	claim := n.claim("later", []gpu.Device{n.slice(0, 19, 0)})
	n.container(k.mustPrepare(claim))
	k.mustUnprepare(claim)
	k.mustUnprepare(running)
	n.isClean()
}

// withheld returns a check that the counter of a memory slice has the value.
func withheld(n *node, index, slice int, want string) func(published) error {
	return func(p published) error {
		counter, ok := p.counters[n.hardware.GPUs[index].Name()][fmt.Sprintf("memory-slice-%d", slice)]
		if !ok || counter.Value.String() != want {
			return fmt.Errorf("memory slice %d of GPU %d: %v, want %s", slice, index, counter.Value.String(), want)
		}
		return nil
	}
}
