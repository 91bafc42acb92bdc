package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const driver = "gpu.tessera.dev"

type inventory gpu.Node

func (i inventory) Node() gpu.Node { return gpu.Node(i) }

// allocated is a claim that holds the devices, and one of another driver.
func allocated(name string, node gpu.Node, devices ...gpu.Device) *resourceapi.ResourceClaim {
	c := claim(name)
	results := []resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: "nic.example.com", Pool: "x", Device: "y"}}
	for _, d := range devices {
		results = append(results, resourceapi.DeviceRequestAllocationResult{
			Request: "gpu", Driver: driver, Pool: wire.PoolName(node.Name, driver), Device: wire.DeviceName(d),
		})
	}
	c.Status.Allocation.Devices.Results = results
	return c
}

func TestRead(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	whole := gpu.Device{GPU: node.GPUs[1].Name(), Use: gpu.Use{Shape: gpu.Whole}}
	slice := gpu.Device{GPU: node.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: node.GPUs[0].Geometry.Placements(19)[3]}}
	object := allocated("a", node, whole, slice)
	object.Status.Allocation.Devices.Results[2].AdminAccess = new(true)
	object.Status.Allocation.Devices.Results[2].ShareID = new(types.UID("share"))

	got, err := NewReader(driver, nil, inventory(node), nil).Read(object)
	if err != nil {
		t.Fatal(err)
	}
	want := prepare.Claim{
		Ref: prepare.Ref{UID: "uid-a", Namespace: "ns", Name: "a"},
		Wanted: []prepare.Wanted{
			{Result: prepare.Result{Request: "gpu", Pool: wire.PoolName(node.Name, driver), Device: wire.DeviceName(whole)}, Use: whole},
			{Result: prepare.Result{Request: "gpu", Pool: wire.PoolName(node.Name, driver), Device: wire.DeviceName(slice), ShareID: "share"}, Use: slice, Admin: true},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

// TestReadLimitsByDevice checks that limits by device find GPUs by their UUID, by which positions are ordered too, and MIG devices by the order of the
// allocation.
func TestReadLimitsByDevice(t *testing.T) {
	const driver = "gpu.nvidia.com"
	node := gputest.Node(t, "h100x2")
	var devices []gpu.Device
	for _, g := range node.GPUs {
		devices = append(devices, gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.Whole}})
	}
	slices.SortFunc(devices, func(a, b gpu.Device) int { return strings.Compare(uuidOf(t, node, b), uuidOf(t, node, a)) }) // in descending order
	second, first := devices[0], devices[1]
	mig := func(i int) gpu.Device {
		return gpu.Device{GPU: node.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: node.GPUs[0].Geometry.Placements(19)[i]}}
	}
	for name, test := range map[string]struct {
		kind, limits string
		devices      []gpu.Device
		want         []int64
	}{
		"positions of GPUs":        {"GpuConfig", `{"0":"1Gi","1":"2Gi"}`, []gpu.Device{second, first}, []int64{2 << 30, 1 << 30}},
		"UUIDs of GPUs":            {"GpuConfig", `{"` + uuidOf(t, node, second) + `":"1Gi"}`, []gpu.Device{second, first}, []int64{1 << 30, 0}},
		"positions of MIG devices": {"MigDeviceConfig", `{"0":"1Gi","1":"2Gi"}`, []gpu.Device{mig(3), mig(1)}, []int64{1 << 30, 2 << 30}},
		"too few devices":          {"GpuConfig", `{"2":"1Gi"}`, devices, nil},
	} {
		object := allocated("a", node, test.devices...)
		for i := range object.Status.Allocation.Devices.Results[1:] {
			object.Status.Allocation.Devices.Results[1+i].Driver = driver
			object.Status.Allocation.Devices.Results[1+i].Pool = wire.PoolName(node.Name, driver)
		}
		raw := `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"` + test.kind + `","sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":` + test.limits + `}}}`
		object.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: k8sruntime.RawExtension{Raw: []byte(raw)}},
		}}}
		got, err := NewReader(driver, nil, inventory(node), nil).Read(object)
		if test.want == nil {
			if err == nil || !strings.Contains(err.Error(), "defaultPerDevicePinnedMemoryLimit[2]") || !strings.Contains(err.Error(), "ns/a") {
				t.Errorf("%s: %v, want an error with the key and the claim's name", name, err)
			}
			continue
		}
		var limits []int64
		for _, w := range got.Wanted {
			limits = append(limits, w.Settings.MPS.PinnedMemoryBytes)
		}
		if err != nil || !slices.Equal(limits, test.want) {
			t.Errorf("%s: limits %v, %v, want %v", name, limits, err, test.want)
		}
	}
}

func uuidOf(t *testing.T, node gpu.Node, d gpu.Device) string {
	t.Helper()
	g, err := node.Find(d.GPU)
	if err != nil {
		t.Fatal(err)
	}
	return g.UUID
}

func TestReadRefuses(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	whole := gpu.Device{GPU: node.GPUs[0].Name(), Use: gpu.Use{Shape: gpu.Whole}}
	tests := map[string]struct {
		change func(*resourceapi.ResourceClaim)
		want   string
	}{
		"an unknown device": {func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[1].Device = "gpu-9" }, `"gpu-9"`},
		"bad parameters": {func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: k8sruntime.RawExtension{Raw: []byte("{}")}},
			}}}
		}, "must be one of GPUConfig, MIGConfig of gpu.tessera.dev/v1alpha1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := allocated("a", node, whole)
			test.change(object)
			_, err := NewReader(driver, nil, inventory(node), nil).Read(object)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "ns/a") {
				t.Errorf("Read: %v, want an error with %q and the claim's name", err, test.want)
			}
		})
	}
}

func TestAllocated(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	idle := claim("idle")
	idle.Status.Allocation = nil
	reader := NewReader(driver, fake.NewClientset(allocated("a", node), idle), inventory(node), nil)
	for name, test := range map[string]struct {
		ref  prepare.Ref
		want error
	}{
		"allocated":      {prepare.Ref{UID: "uid-a", Namespace: "ns", Name: "a"}, nil},
		"replaced":       {prepare.Ref{UID: "uid-older", Namespace: "ns", Name: "a"}, prepare.ErrNoClaim},
		"gone":           {prepare.Ref{UID: "uid-b", Namespace: "ns", Name: "b"}, prepare.ErrNoClaim},
		"without a name": {prepare.Ref{UID: "uid-a"}, prepare.ErrNoClaim},
		"not allocated":  {prepare.Ref{UID: "uid-idle", Namespace: "ns", Name: "idle"}, prepare.ErrNoClaim},
	} {
		if got, err := reader.Allocated(t.Context(), test.ref); !errors.Is(err, test.want) || err == nil && got.Ref != test.ref {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
}

// consumers is a kubelet with one answer.
type consumers struct {
	known bool
	err   error
}

func (c *consumers) Running(context.Context) (map[prepare.Ref]bool, error) {
	if c.err != nil {
		return nil, c.err
	}
	return map[prepare.Ref]bool{named("runs"): true}, nil
}

func (c *consumers) Has(context.Context, prepare.Ref) (bool, error) { return c.known, c.err }

func TestHeldDuringGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := gputest.Node(t, "h100x2")
		client := fake.NewClientset(allocated("here", node))
		kubelet := &consumers{}
		reader := NewReader(driver, client, inventory(node), kubelet)
		held := func(name string) bool {
			t.Helper()
			held, err := reader.Held(t.Context(), prepare.Ref{UID: "uid-" + name, Namespace: "ns", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		if !held("gone") || !held("here") {
			t.Error("a claim is let go of at first sight")
		}
		<-time.After(claimGoneGrace - time.Second)
		if !held("gone") {
			t.Error("a claim is let go of before its time")
		}
		<-time.After(time.Second)
		for usage, answer := range map[prepare.Usage]consumers{
			prepare.UsedByKubelet: {known: true}, prepare.UsageUnknown: {err: errors.New("connection refused")},
		} {
			*kubelet = answer
			held, err := reader.Held(t.Context(), prepare.Ref{UID: "uid-gone", Namespace: "ns", Name: "gone"})
			var used *prepare.InUse
			if !held || !errors.As(err, &used) || used.Usage != usage {
				t.Errorf("kubelet %+v: held %t, %v", answer, held, err)
			}
		}
		*kubelet = consumers{}
		if held("gone") {
			t.Error("a claim that is gone for long is still held")
		}
		if !held("here") {
			t.Error("a claim that the API server has is let go of")
		}
	})
}

// While the API server refuses reads, nothing is released; afterwards a claim that was deleted meanwhile is.
func TestHeldWhileAPIServerIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := gputest.Node(t, "h100x2")
		client := fake.NewClientset(allocated("here", node), allocated("deleted", node))
		busy := false
		client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, k8sruntime.Object, error) {
			return busy, nil, apierrors.NewTooManyRequests("busy", 1)
		})
		reader := NewReader(driver, client, inventory(node), &consumers{})
		released := func(minutes int) (names []string) {
			t.Helper()
			for range minutes {
				for _, name := range []string{"here", "deleted"} {
					held, err := reader.Held(t.Context(), named(name))
					if !held && !slices.Contains(names, name) {
						names = append(names, name)
					}
					if apierrors.IsTooManyRequests(err) != busy {
						t.Errorf("%s: %v", name, err)
					}
				}
				<-time.After(time.Minute)
			}
			return names
		}
		if names := released(1); len(names) > 0 {
			t.Errorf("released: %v", names)
		}
		busy = true
		if err := client.ResourceV1().ResourceClaims("ns").Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if names := released(10); len(names) > 0 {
			t.Errorf("released while the API server was busy: %v", names)
		}
		busy = false
		if names := released(11); !slices.Equal(names, []string{"deleted"}) {
			t.Errorf("released afterwards: %v", names)
		}
	})
}

// A claim that the watch cache has is not read from the storage; one that only the cache lacks is held.
func TestHeldReadsCacheFirst(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	client := fake.NewClientset(allocated("here", node), allocated("new", node))
	var versions []string
	client.PrependReactor("get", "resourceclaims", func(action k8stesting.Action) (bool, k8sruntime.Object, error) {
		get, ok := action.(k8stesting.GetActionImpl)
		if !ok {
			t.Fatalf("a %T", action)
		}
		versions = append(versions, get.GetOptions.ResourceVersion)
		missing := get.Name == "new" && get.GetOptions.ResourceVersion == "0"
		return missing, nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), get.Name)
	})
	reader := NewReader(driver, client, inventory(node), &consumers{})
	for name, want := range map[string][]string{"here": {"0"}, "new": {"0", ""}} {
		versions = nil
		if held, err := reader.Held(t.Context(), named(name)); !held || err != nil {
			t.Errorf("%s: held %t, %v", name, held, err)
		}
		if !slices.Equal(versions, want) || len(reader.gone) > 0 {
			t.Errorf("%s: read at versions %q, want %q; gone: %v", name, versions, want, reader.gone)
		}
	}
}

// The claims of running pods are known without the API server, if kubelet can be read.
func TestRunningMakesNoRequest(t *testing.T) {
	client := fake.NewClientset()
	kubelet := &consumers{}
	reader := NewReader(driver, client, nil, kubelet)
	if running := reader.Running(t.Context()); !running[named("runs")] {
		t.Errorf("running: %v", running)
	}
	kubelet.err = errors.New("connection refused")
	if running := reader.Running(t.Context()); len(running) > 0 {
		t.Errorf("running according to a kubelet that cannot be read: %v", running)
	}
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("requests: %v", actions)
	}
}
