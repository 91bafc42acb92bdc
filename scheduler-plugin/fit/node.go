package fit

import (
	"math/bits"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
)

// Node is the GPUs of one node and the devices that it offers. It is immutable; nodes share what is equal (Kind, Wiring).
type Node struct {
	Name string
	// GPUs are by position, which Device.GPU names.
	GPUs []GPU
	// Devices are in the order of publication. A device is named by its position.
	Devices []Device
	// Wiring has the links between the GPUs.
	Wiring *topology.Wiring
}

// GPU is one GPU of a node and what it holds.
type GPU struct {
	Name      string
	Kind      *Kind
	Occupancy gpu.Occupancy
	// NUMA is the NUMA node, negative without one; Clique the NVLink fabric's, empty without one.
	NUMA   int
	Clique string
}

// Device is one published device.
type Device struct {
	// GPU is the position of the device's GPU.
	GPU int
	// Use is what the device takes from it; the share of a shared shape is defined by the demand.
	Use gpu.Use
}

// Set is a set of the devices of a node, by position.
type Set []uint64

// NewSet returns an empty set for so many devices.
func NewSet(devices int) Set { return make(Set, (devices+63)/64) }

// Add adds the device.
func (s Set) Add(device int) { s[device/64] |= 1 << (device % 64) }

// Has reports whether the device is in the set.
func (s Set) Has(device int) bool { return s[device/64]&(1<<(device%64)) != 0 }

// all yields the devices of the set in order.
func (s Set) all(yield func(int) bool) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(i*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
