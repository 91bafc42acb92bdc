package wire

import (
	"errors"
	"fmt"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The bounds of a pool, in addition to those of a geometry (gpu.MaxProfiles, gpu.MaxEngines). Encode publishes no pool beyond
// them, and Read refuses one: only a faulty or compromised node publishes it, and what all other nodes offer must not depend on
// its size. Known nodes have at most 16 GPUs, and an RTX PRO 6000 offers 35 devices.
const (
	// MaxGPUs is the largest number of GPUs of a pool, MaxDevices of devices of one GPU.
	MaxGPUs    = 64
	MaxDevices = 128
	// MaxStates limits the sum of gpu.Geometry.States over the GPUs of a pool. 16 H100s have 8,192.
	MaxStates = 1 << 17
)

// size counts what is bounded.
type size struct {
	gpus   int
	states uint64
}

// addGPU adds a GPU with so many devices. An error names the exceeded bound.
func (s *size) addGPU(name string, devices int) error {
	switch s.gpus++; {
	case s.gpus > MaxGPUs:
		return fmt.Errorf("more than %d GPUs: %w", MaxGPUs, gpu.ErrTooLarge)
	case devices > MaxDevices:
		return fmt.Errorf("GPU %q: %d devices, at most %d: %w", name, devices, MaxDevices, gpu.ErrTooLarge)
	}
	return nil
}

// addStates adds the states of the GPU's geometry, which can be nil. An error names the exceeded bound.
func (s *size) addStates(name string, g *gpu.Geometry) error {
	if s.states += g.States(); s.states > MaxStates {
		return fmt.Errorf("GPU %q: %d states of memory slices and engines up to this GPU, at most %d: %w", name, s.states, MaxStates, gpu.ErrTooLarge)
	}
	return nil
}

// ErrNotOwn reports that a pool is not that of the node that publishes it.
var ErrNotOwn = errors.New("not the pool of its node")

// checkPoolName returns an error that wraps ErrNotOwn if the pool is not that of the node. A node whose token is stolen could
// otherwise publish in the pool of another one.
func checkPoolName(pool, node, driver string) error {
	switch {
	case node == "":
		return fmt.Errorf("pool %q of no node: %w", pool, ErrNotOwn)
	case pool != PoolName(node, driver):
		return fmt.Errorf("pool %q of node %s, whose pool is %q: %w", pool, node, PoolName(node, driver), ErrNotOwn)
	}
	return nil
}
