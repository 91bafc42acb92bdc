package agent

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// parameters adds an opaque configuration for the driver to the claim, as a user writes it.
func parameters(driver, text string) change {
	return func(claim *resourceapi.ResourceClaim) {
		opaque := resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)},
		}}
		claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{DeviceConfiguration: opaque})
		claim.Status.Allocation.Devices.Config = append(claim.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: opaque,
		})
	}
}

// classParameters gives the class of the claim an opaque configuration, as the allocation has it.
func classParameters(text string) change {
	return func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Config = append(claim.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)},
			}},
		})
	}
}

// result changes the claim's first allocation result.
func result(change func(*resourceapi.DeviceRequestAllocationResult)) change {
	return func(claim *resourceapi.ResourceClaim) { change(&claim.Status.Allocation.Devices.Results[0]) }
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	_, k := n.run()
	neighbour := n.claim("neighbour", []gpu.Device{n.slice(0, 19, 0)})
	given := k.mustPrepare(neighbour)
	const prefix = `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":`
	for i, test := range []struct {
		name   string
		change change
		want   string // in the error; empty is success
	}{
		{"unknown field", parameters(driver, prefix+`"GPUConfig","timeslicing":{}}`), "timeslicing: Forbidden: unknown field"},
		{"unknown kind", parameters(driver, prefix+`"VGPUConfig"}`), `"VGPUConfig"`},
		{"wrong type", parameters(driver, prefix+`"GPUConfig","timeSlicing":7}`), "timeSlicing"},
		{"empty object", parameters(driver, `{}`), "must be one of GPUConfig, MIGConfig of gpu.tessera.dev/v1alpha1"},
		{"another driver's", parameters("gpu.example.com", `{"anything":true}`), ""},
		{"for another type of device", func(c *resourceapi.ResourceClaim) {
			parameters(driver, prefix+`"GPUConfig"}`)(c)
			c.Spec.Devices.Config[0].Requests = []string{"r0"}
			c.Status.Allocation.Devices.Config[0].Requests = []string{"r0"}
		}, "is not for a device of type mig"},
		{"unknown device", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "gpu-0000-00-00-0" }), "no such device"},
		{"another node's pool", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = "elsewhere" }), `pool "elsewhere"`},
		{"nothing of ours", result(func(r *resourceapi.DeviceRequestAllocationResult) { r.Driver = "gpu.example.com" }), "no device of this driver"},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim := n.claim("bad-"+string(rune('a'+i)), []gpu.Device{n.slice(0, 9, 4)}, test.change)
			devices, err := k.prepare(claim)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("prepare: %v", err)
			case test.want == "":
				n.container(devices)
			case err == nil || !strings.Contains(err.Error(), test.want):
				t.Errorf("prepare: %v, want %q", err, test.want)
			}
			if err := k.unprepare(claim); err != nil {
				t.Errorf("unprepare: %v", err)
			}
		})
	}
	n.container(given)
	k.mustUnprepare(neighbour)
	n.isClean()
}

func TestADeviceIsGivenOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	_, k := n.run()
	for name, pair := range map[string][2]gpu.Device{
		"whole":       {n.whole(0), n.whole(0)},
		"mig":         {n.slice(1, 19, 0), n.slice(1, 19, 0)},
		"overlapping": {n.slice(1, 19, 0), n.slice(1, 9, 0)},
		"whole-mig":   {n.slice(1, 19, 0), n.whole(1)},
	} {
		t.Run(name, func(t *testing.T) {
			holder, second := n.claim(name+"-holder", pair[:1]), n.claim(name+"-second", pair[1:])
			k.mustPrepare(holder)
			if _, err := k.prepare(second); err == nil || !strings.Contains(err.Error(), holder.GetName()) {
				t.Errorf("the second claim got: %v, want an error that names %s", err, holder.GetName())
			}
			k.mustUnprepare(holder)
			n.container(k.mustPrepare(second))
			k.mustUnprepare(second)
			n.isClean()
		})
	}
}

func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, k := n.run()
	broken, other := n.claim("broken", []gpu.Device{n.slice(0, 19, 0)}), n.claim("other", []gpu.Device{n.slice(1, 19, 0)})
	k.mustPrepare(broken)
	k.mustPrepare(other)
	a.kill()
	n.must(os.WriteFile(n.recordOf(broken.GetUid()), []byte(`{"checksum":"sha256:00","rec`), 0o600))

	n.configure("profiles: [1g.10gb]\n") // distinguishes what this agent publishes from what the previous one published
	_, k = n.run()
	n.publishes("the devices of this agent", devices(2*(7+4)))
	n.publishes("nothing withheld under the live claim", withheld(n, 0, 0, "1"))
	n.eventuallyFile("the broken record set aside", n.recordOf(broken.GetUid())+".unreadable-*")
	k.mustUnprepare(other)
	if got := placements(n.truth()); !slices.Equal(got, []string{"GPU 0: 19 at 0"}) {
		t.Errorf("instances: %q, want the broken claim's alone", got)
	}
	n.container(k.mustPrepare(broken))
	k.mustUnprepare(broken)
	n.isClean()
}

// admin runs the fake nvidia-smi.
func (n *node) admin(args ...string) {
	n.t.Helper()
	if out, err := exec.Command(fakegpu.SMI(n.machine()), args...).CombinedOutput(); err != nil {
		n.t.Fatalf("nvidia-smi %q: %v\n%s", args, err, out)
	}
}

func TestUnknownInstanceIsLeftAlone(t *testing.T) {
	t.Parallel() // waits for the agent's polls of the hardware
	n := newNode(t, "h100x2")
	a, k := n.run()
	a.waitReady()
	n.admin("-i", "0", "-mig", "1")
	n.admin("mig", "-i", "0", "-cgi", "14:2", "-C")
	n.publishes("the instance's slices withheld", withheld(n, 0, 2, "0"))
	n.publishes("the slice beside them offered", withheld(n, 0, 4, "1"))
	n.publishes("every device still published", devices(n.offered()))

	over := n.claim("over", []gpu.Device{n.slice(0, 9, 0)})
	if _, err := k.prepare(over); err == nil || !strings.Contains(err.Error(), "not created by Tessera") {
		t.Errorf("prepare over the instance: %v", err)
	}
	k.mustUnprepare(over)
	beside := n.claim("beside", []gpu.Device{n.slice(0, 9, 4)})
	k.mustPrepare(beside)
	k.mustUnprepare(beside)
	a.kill()
	a, _ = n.run()
	a.waitReady()
	if got := placements(n.truth()); !slices.Equal(got, []string{"GPU 0: 14 at 2"}) {
		t.Errorf("instances: %q, want the administrator's", got)
	}
	n.admin("mig", "-i", "0", "-dci")
	n.admin("mig", "-i", "0", "-dgi")
	n.publishes("the slices offered again", withheld(n, 0, 2, "1"))
}

func TestBusyInstance(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, k := n.run()
	busy, other := n.claim("busy", []gpu.Device{n.slice(0, 19, 0)}), n.claim("other", []gpu.Device{n.slice(0, 9, 4)})
	k.mustPrepare(busy)
	n.must(fakegpu.Fail(n.machine(), "nvmlComputeInstanceDestroy", errorInUse, fakegpu.Forever))
	if err := k.unprepare(busy); err == nil || !strings.Contains(err.Error(), "In use") {
		t.Errorf("unprepare of a busy instance: %v", err)
	}
	k.mustPrepare(other)
	next := n.claim("next", []gpu.Device{n.slice(0, 19, 0)})
	if _, err := k.prepare(next); err == nil || !strings.Contains(err.Error(), busy.GetName()) {
		t.Errorf("prepare over the busy instance: %v, want an error that names %s", err, busy.GetName())
	}
	k.mustUnprepare(next)
	a.metric(`tessera_claim_errors_total{operation="unprepare",reason="busy"} 1`)
	a.metric(`tessera_claim_records 2`)
	n.must(fakegpu.Reset(n.machine()))
	k.mustUnprepare(busy)
	k.mustUnprepare(other)
	a.metric(`tessera_claim_records 0`)
	n.isClean()
}

func TestReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	a, k := n.run()
	claims := []*drapb.Claim{n.claim("again", []gpu.Device{n.slice(0, 9, 4)}), n.claim("gone", []gpu.Device{n.slice(1, 9, 4)})}
	for _, claim := range claims {
		k.mustPrepare(claim)
	}
	a.kill()
	n.must(fakegpu.Reboot(n.machine()))
	n.must(os.RemoveAll(n.cdi()))
	n.must(os.MkdirAll(n.cdi(), 0o755))

	_, k = n.run()
	n.container(k.mustPrepare(claims[0]))
	if got := placements(n.truth()); !slices.Equal(got, []string{"GPU 0: 9 at 4"}) {
		t.Errorf("instances: %q, want the claim's that was prepared again", got)
	}
	k.mustUnprepare(claims[1])
	k.mustUnprepare(claims[0])
	n.isClean()
}
