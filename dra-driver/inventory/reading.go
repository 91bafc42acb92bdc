package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// reading is the hardware at one moment and the devices that claims held just after it.
type reading struct {
	node gpu.Node
	held []gpu.Device
	// all reports whether held is complete.
	all bool
}

// readOnce reads the hardware and then the records. In this order a MIG device that is being created is never foreign,
// because its record is written first. A GPU that does not respond keeps its state of last, with Lost set.
func (i *Inventory) readOnce(ctx context.Context, last gpu.Node) (reading, error) {
	node, err := i.config.Hardware.Read(ctx)
	if err != nil {
		return reading{}, err
	}
	node.Name = i.config.Node
	for n, g := range node.GPUs {
		if known, err := last.Find(g.Name()); g.Lost && err == nil {
			known.Lost = true
			node.GPUs[n] = known
		}
	}
	held, all, err := i.config.Records.Held()
	if err != nil {
		return reading{}, fmt.Errorf("read what claims hold: %w", err)
	}
	return reading{node, held, all}, nil
}

// read reads the node and determines which memory slices are withheld. If the record of a MIG device is deleted between
// the two steps of readOnce, the MIG device looks foreign, so a new foreign MIG device counts only if a second read
// finds it too.
func (i *Inventory) read(ctx context.Context, last *snapshot) (gpu.Node, []gpu.Instance, error) {
	r, err := i.readOnce(ctx, last.node)
	if err != nil {
		return gpu.Node{}, nil, err
	}
	strangers := r.foreignInstances()
	if len(without(strangers, last.foreign)) > 0 {
		if r, err = i.readOnce(ctx, last.node); err != nil {
			return gpu.Node{}, nil, err
		}
		again := r.foreignInstances()
		strangers = without(again, without(again, strangers))
	}
	for n, g := range r.node.GPUs {
		r.node.GPUs[n].Withheld = r.withheld(g, strangers)
	}
	return r.node, strangers, nil
}

// foreignInstances returns the MIG devices that no record owns.
func (r reading) foreignInstances() []gpu.Instance {
	var found []gpu.Instance
	for _, g := range r.node.GPUs {
		for _, i := range g.Instances {
			own := gpu.Device{GPU: i.GPU, Use: gpu.Use{Shape: gpu.MIG, Placement: i.Placement}}
			if !slices.Contains(r.held, own) {
				found = append(found, i)
			}
		}
	}
	return found
}

// withheld returns the memory slices of the GPU that cannot be allocated: those of foreign MIG devices, except slices
// that a claim holds or may hold. A counter that is lowered below its live allocations becomes negative, and the
// scheduler then rejects the whole node.
func (r reading) withheld(g gpu.GPU, strangers []gpu.Instance) gpu.Mask {
	var mask gpu.Mask
	if !r.all {
		return mask
	}
	for _, i := range strangers {
		if i.GPU == g.Name() {
			mask |= i.Placement.Mask()
		}
	}
	for _, d := range r.held {
		if cost, err := g.Geometry.Cost(d.Use); err == nil && d.GPU == g.Name() {
			mask &^= cost.Slices
		}
	}
	return mask
}

// without returns the instances that others does not contain.
func without(instances, others []gpu.Instance) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(instances), func(i gpu.Instance) bool { return slices.Contains(others, i) })
}
