package status

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

func TestData(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	parent := node.GPUs[0]
	placement := parent.Geometry.Placements(19)[3]
	for name, test := range map[string]struct {
		change func(*prepare.Answer)
		want   string
	}{
		"whole": {func(*prepare.Answer) {}, `{
			"kind": "DeviceStatus", "apiVersion": "gpu.tessera.dev/v1alpha1", "type": "gpu",
			"gpu": "gpu-0000-3b-00-0", "pciBusID": "0000:3b:00.0", "productName": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1",
			"cdiDeviceIDs": ["gpu.tessera.dev/claim=g0", "gpu.tessera.dev/common=all"]}`},
		"MIG": {func(a *prepare.Answer) {
			a.Use = gpu.Device{GPU: "gpu-0000-3b-00-0", Use: gpu.Use{Shape: gpu.MIG, Placement: placement}}
			a.GPU.Geometry = parent.Geometry
			a.Instance = &gpu.Instance{GPU: a.Use.GPU, Placement: placement, GI: 7, CI: 0, UUID: "MIG-1", Multiprocessors: 16}
			a.Daemon = &prepare.Client{Name: "mps-uid-0", ActiveThreadPercentage: 50, PinnedMemoryBytes: 1 << 30}
		}, `{
			"kind": "DeviceStatus", "apiVersion": "gpu.tessera.dev/v1alpha1", "type": "mig",
			"gpu": "gpu-0000-3b-00-0", "pciBusID": "0000:3b:00.0", "productName": "NVIDIA H100 80GB HBM3",
			"uuid": "MIG-1", "parentUUID": "GPU-1",
			"mig": {"profile": "1g.10gb", "placement": {"profile": 19, "start": 3, "size": 1}, "gpuInstanceID": 7, "computeInstanceID": 0},
			"mps": {"daemon": "mps-uid-0", "activeThreadPercentage": 50, "pinnedDeviceMemoryLimitBytes": 1073741824},
			"cdiDeviceIDs": ["gpu.tessera.dev/claim=g0", "gpu.tessera.dev/common=all"]}`},
		"time slices": {timeSlice("Long", "Short"), `{
			"kind": "DeviceStatus", "apiVersion": "gpu.tessera.dev/v1alpha1", "type": "gpu",
			"gpu": "gpu-0000-3b-00-0", "pciBusID": "0000:3b:00.0", "productName": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1",
			"timeSlice": {"interval": "Short", "requestedInterval": "Long"},
			"cdiDeviceIDs": ["gpu.tessera.dev/claim=g0", "gpu.tessera.dev/common=all"]}`},
		"virtual machine": {func(a *prepare.Answer) {
			a.Use.Shape, a.GPU.UUID, a.IOMMUGroup, a.CDIDevices = gpu.VFIO, "", "31", []string{"gpu.tessera.dev/claim=g0"}
		}, `{
			"kind": "DeviceStatus", "apiVersion": "gpu.tessera.dev/v1alpha1", "type": "vfio",
			"gpu": "gpu-0000-3b-00-0", "pciBusID": "0000:3b:00.0", "productName": "NVIDIA H100 80GB HBM3", "iommuGroup": "31",
			"cdiDeviceIDs": ["gpu.tessera.dev/claim=g0"]}`},
		"watched": {func(a *prepare.Answer) { a.Use.Shape, a.Admin = gpu.Monitor, true }, `{
			"kind": "DeviceStatus", "apiVersion": "gpu.tessera.dev/v1alpha1", "type": "monitor",
			"gpu": "gpu-0000-3b-00-0", "pciBusID": "0000:3b:00.0", "productName": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1",
			"adminAccess": true,
			"cdiDeviceIDs": ["gpu.tessera.dev/claim=g0", "gpu.tessera.dev/common=all"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := deviceData(answer("g0", test.change)).raw()
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, []byte(test.want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(text)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestDataFits describes a device whose every text is as long as its source allows.
func TestDataFits(t *testing.T) {
	long := answer("g0", timeSlice("Medium", "Default"), func(a *prepare.Answer) {
		a.GPU.Product = strings.Repeat("N", 96) // NVML_DEVICE_NAME_V2_BUFFER_SIZE
		a.Use.GPU, a.GPU.UUID = strings.Repeat("g", 63), strings.Repeat("U", 96)
		a.Instance = &gpu.Instance{UUID: strings.Repeat("U", 96)}
		a.Daemon = &prepare.Client{Name: strings.Repeat("m", 63)}
		a.CDIDevices = []string{strings.Repeat("c", 255), strings.Repeat("c", 255)}
	})
	text, err := deviceData(long).raw()
	if err != nil {
		t.Fatal(err)
	}
	if most := 10 * 1024; len(text) > most/4 {
		t.Errorf("%d bytes; the API server takes %d, and fields are added over time", len(text), most)
	}
}

// TestOneDeviceTwice prepares a claim with two requests that watch the same device.
func TestOneDeviceTwice(t *testing.T) {
	claim := allocated("c", "g0", "g0")
	second := answer("g0", func(a *prepare.Answer) { a.Request, a.CDIDevices[0] = "s", "gpu.tessera.dev/claim=second" })
	entries, err := preparedState([]prepare.Answer{answer("g0"), second})(owner{driver, pool}, claim, metav1.Now())
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v; want 1", len(entries), err)
	}
	var data Data
	if err := json.Unmarshal(entries[0].Data.Raw, &data); err != nil {
		t.Fatal(err)
	}
	want := []string{"gpu.tessera.dev/claim=g0", "gpu.tessera.dev/common=all", "gpu.tessera.dev/claim=second"}
	if diff := cmp.Diff(want, data.CDIDeviceIDs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
