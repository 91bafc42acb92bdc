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

// TestConsumable checks, with kube-scheduler's allocator, how many claims have one GPU of type gpu at the same time. The amounts and the defaults are those
// of dra-driver-nvidia-gpu 0.5 (consumable_shares.go) with its option consumable-shares.
func TestConsumable(t *testing.T) {
	t.Parallel()
	capacity := func(name resourceapi.QualifiedName, amount string) map[resourceapi.QualifiedName]resource.Quantity {
		return map[resourceapi.QualifiedName]resource.Quantity{name: resource.MustParse(amount)}
	}
	for name, test := range map[string]struct {
		consumable wire.Consumable
		shares     int
		capacity   map[resourceapi.QualifiedName]resource.Quantity
		// want is how many claims the GPU of 81,559 MiB serves, at most 20.
		want int
	}{
		"memory: nothing is requested": {wire.ConsumeMemory, 0, nil, 1},
		"memory: 2Gi":                  {wire.ConsumeMemory, 0, capacity(wire.Memory, "2Gi"), 20},
		"memory: 8Gi":                  {wire.ConsumeMemory, 0, capacity(wire.Memory, "8Gi"), 9},
		"memory: a byte":               {wire.ConsumeMemory, 0, capacity(wire.Memory, "1"), 20},
		"memory: all":                  {wire.ConsumeMemory, 0, capacity(wire.Memory, "81559Mi"), 1},
		"memory: too much":             {wire.ConsumeMemory, 0, capacity(wire.Memory, "81560Mi"), 0},
		"memory: shares":               {wire.ConsumeMemory, 0, capacity(wire.Shares, "1"), 0},
		"unlimited":                    {wire.ConsumeShares, 0, nil, 20},
		"unlimited: 40Gi":              {wire.ConsumeShares, 0, capacity(wire.Memory, "40Gi"), 1},
		"4":                            {wire.ConsumeShares, 4, nil, 4},
		"4: three shares":              {wire.ConsumeShares, 4, capacity(wire.Shares, "3"), 1},
		"4: 2Gi":                       {wire.ConsumeShares, 4, capacity(wire.Memory, "2Gi"), 4},
		"4: 30Gi":                      {wire.ConsumeShares, 4, capacity(wire.Memory, "30Gi"), 2},
		"1":                            {wire.ConsumeShares, 1, nil, 1},
		"4: too many shares":           {wire.ConsumeShares, 4, capacity(wire.Shares, "5"), 0},
		"no offer of this kind":        {wire.ConsumeWhole, 4, nil, 0},
		"4: nothing of this name":      {wire.ConsumeShares, 4, capacity("compute", "5"), 0},
		"4: no shares":                 {wire.ConsumeShares, 4, capacity(wire.Shares, "0"), 4},
		"memory: nothing of it":        {wire.ConsumeMemory, 0, capacity(wire.Memory, "0"), 20},
		"unlimited: nothing of it":     {wire.ConsumeShares, 0, capacity(wire.Memory, "0"), 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := gputest.Node(t, "h100x2")
			o := offering(gpu.TimeShare, gpu.MIG)
			o.Consumable, o.Offer.Shares = test.consumable, test.shares
			s := newScheduler(t.Context(), t, node, o)
			r := on(node.GPUs[0], gpu.Whole)
			r.capacity = test.capacity
			got := 0
			for ; got < 20; got++ {
				claim, ok := s.allocate(r)
				if !ok {
					break
				}
				device, err := wire.Decode(s.held[claim], node, o)
				if err != nil || device.Shape != gpu.TimeShare || device.Share.Shares < 1 {
					t.Fatalf("%+v, %v, want a time share", device, err)
				}
			}
			if got != test.want {
				t.Errorf("%d claims on one GPU, want %d", got, test.want)
			}
			if _, ok := s.allocate(on(node.GPUs[0], gpu.MIG)); ok != (got == 0) {
				t.Errorf("with %d claims a MIG device of the GPU is allocated: %v", got, ok)
			}
		})
	}
}

// TestReadConsumable checks that readers see time shares, and as many shares as there are.
func TestReadConsumable(t *testing.T) {
	t.Parallel()
	node := gputest.Node(t, "h100x2")
	for shares, consumable := range []wire.Consumable{wire.ConsumeMemory, wire.ConsumeShares, wire.ConsumeShares} {
		o := offering(gpu.TimeShare, gpu.MIG)
		o.Consumable, o.Offer.Shares = consumable, shares
		pool := encode(t, node, o)
		var list []resourceapi.ResourceSlice
		for _, s := range published(node.Name, pool) {
			list = append(list, *s)
		}
		for _, r := range wire.Read(list) {
			if len(r.Invalid) > 0 || len(r.GPUs) != 2 {
				t.Fatalf("%d GPUs, invalid: %v", len(r.GPUs), r.Invalid)
			}
			g := r.GPUs[0]
			last := g.Devices[len(g.Devices)-1]
			if last.Use.Shape != gpu.TimeShare || g.Shares != shares || g.GPU.MemoryBytes>>20 != node.GPUs[0].MemoryBytes>>20 {
				t.Errorf("%s is %v, %d shares, %d bytes; want a time share, %d, %d", last.Name, last.Use, g.Shares, g.GPU.MemoryBytes, shares, node.GPUs[0].MemoryBytes)
			}
		}
	}
}
