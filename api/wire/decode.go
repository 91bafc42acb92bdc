package wire

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Decode returns the device that an allocation result names, with the share that the claim consumes of a shared one.
//
// The name is compared with all devices that the node's hardware has, and not only with those that are offered. A claim that
// was allocated before the offer was narrowed therefore remains valid. An error names the pool and the device.
func Decode(result resourceapi.DeviceRequestAllocationResult, n gpu.Node, o Options) (gpu.Device, error) {
	if pool := PoolName(n.Name, o.Driver); result.Driver != o.Driver || result.Pool != pool {
		return gpu.Device{}, fmt.Errorf("device %q of pool %q, driver %q: want pool %q, driver %q", result.Device, result.Pool, result.Driver, pool, o.Driver)
	}
	for _, g := range n.GPUs {
		for _, use := range g.AllUses() {
			if d := (gpu.Device{GPU: g.Name(), Use: use}); DeviceName(d) == result.Device {
				d.Share = Share(result, use.Shape, o.Driver)
				return d, nil
			}
		}
	}
	return gpu.Device{}, fmt.Errorf("device %q of pool %q: no such device on node %s", result.Device, result.Pool, n.Name)
}

// Share returns what the result consumes of a device of the driver in a shared shape; zero for other shapes. The allocator sets
// all consumed capacities. A result that has some, but not the shares, holds one share.
func Share(result resourceapi.DeviceRequestAllocationResult, shape gpu.Shape, driver string) gpu.Share {
	if !shape.Shared() || len(result.ConsumedCapacity) == 0 {
		return gpu.Share{}
	}
	consumed := func(name resourceapi.QualifiedName) int64 {
		for _, known := range []resourceapi.QualifiedName{name, resourceapi.QualifiedName(driver) + "/" + name} {
			if q, stated := result.ConsumedCapacity[known]; stated {
				return max(0, q.Value())
			}
		}
		return 0
	}
	return gpu.Share{
		MemoryBytes: uint64(consumed(Memory)),
		Shares:      max(1, int(consumed(Shares))),
		Compute:     int(consumed(Compute)),
	}
}
