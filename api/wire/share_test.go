package wire_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/wire"
)

// TestDecodeShare checks which share results from the consumed capacity of a shared GPU.
func TestDecodeShare(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	consumed := func(pairs ...string) map[resourceapi.QualifiedName]resource.Quantity {
		all := map[resourceapi.QualifiedName]resource.Quantity{}
		for i := 0; i < len(pairs); i += 2 {
			all[resourceapi.QualifiedName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return all
	}
	for name, test := range map[string]struct {
		shape    gpu.Shape
		consumed map[resourceapi.QualifiedName]resource.Quantity
		want     gpu.Share
	}{
		"everything":       {gpu.MPS, consumed("memory", "20Gi", "shares", "2", "compute", "25"), gpu.Share{MemoryBytes: 20 << 30, Shares: 2, Compute: 25}},
		"with domains":     {gpu.MPS, consumed(driver+"/memory", "1Gi", driver+"/shares", "1", driver+"/compute", "0"), gpu.Share{MemoryBytes: 1 << 30, Shares: 1}},
		"no limit of time": {gpu.TimeShare, consumed("memory", "8Gi", "shares", "1"), gpu.Share{MemoryBytes: 8 << 30, Shares: 1}},
		"nothing":          {gpu.TimeShare, nil, gpu.Share{}},
		"only memory":      {gpu.TimeShare, consumed("memory", "1Gi"), gpu.Share{MemoryBytes: 1 << 30, Shares: 1}},
		"less than none":   {gpu.TimeShare, consumed("memory", "-1Gi", "shares", "-1"), gpu.Share{Shares: 1}},
		"not shared":       {gpu.Whole, consumed("memory", "8Gi"), gpu.Share{}},
	} {
		device := gpu.Device{GPU: node.GPUs[1].Name(), Use: gpu.Use{Shape: test.shape}}
		got, err := wire.Decode(resourceapi.DeviceRequestAllocationResult{
			Driver: driver, Pool: wire.PoolName(node.Name, driver), Device: wire.DeviceName(device), ConsumedCapacity: test.consumed,
		}, node, offering(test.shape))
		if device.Share = test.want; err != nil || got != device {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, device)
		}
	}
}
