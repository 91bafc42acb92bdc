package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// view is the input of planning for one claim, read while the claim's locks were held.
type view struct {
	// gpus are the claim's GPUs, by name in ascending order.
	gpus []reading
	// others are the records of all other claims of this boot.
	others []Record
	// shares is how many claims one GPU serves in a shared shape.
	shares int
}

// reading is one GPU of a view. Mode and Instances are read from the hardware if the claim changes or monitors the GPU, else they are unset.
type reading struct {
	gpu.GPU
	name string
	// unread is why the GPU could not be read; the embedded GPU is invalid then.
	unread error
}

// on returns the reading of the GPU; every GPU that the claim names has one.
func (v view) on(name string) reading {
	for _, r := range v.gpus {
		if r.name == name {
			return r
		}
	}
	return reading{name: name, unread: fmt.Errorf("GPU %s: not read", name)}
}

// replace replaces the reading of a GPU.
func (v view) replace(newer reading) {
	for i, r := range v.gpus {
		if r.name == newer.name {
			v.gpus[i] = newer
		}
	}
}

// lostGPUError returns why a GPU cannot be read that the claim has changed.
func (v view) lostGPUError(r Record) error {
	for _, g := range v.gpus {
		if g.unread != nil && r.altersGPU(g.name) {
			return g.unread
		}
	}
	return nil
}

// at returns the MIG device at exactly the placement.
func (r reading) at(p gpu.Placement) (gpu.Instance, bool) {
	i := slices.IndexFunc(r.Instances, func(i gpu.Instance) bool { return i.Placement == p })
	if i < 0 {
		return gpu.Instance{}, false
	}
	return r.Instances[i], true
}

// readGPUs reads the GPUs of the record's claim. A GPU that does not respond is part of the view, not an error.
func (p *Preparer) readGPUs(ctx context.Context, r Record, others []Record) view {
	v := view{others: others, shares: p.Shares}
	node := p.Inventory.Node()
	seen := gpuNames(slices.DeleteFunc(slices.Clone(r.Wanted), func(w Wanted) bool {
		return !w.touches() && w.Use.Shape != gpu.Monitor
	}))
	for _, name := range r.gpus() {
		reading := findGPU(node, name)
		if reading.unread == nil && slices.Contains(seen, name) {
			reading = p.readGPU(ctx, reading)
		}
		v.gpus = append(v.gpus, reading)
	}
	return v
}

// others returns the records of all other claims of this boot.
func (p *Preparer) others(r Record) ([]Record, error) {
	records, err := p.Records.List()
	if err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	return slices.DeleteFunc(records, func(other Record) bool {
		return other.UID == r.UID || other.BootID != p.BootID
	}), nil
}

// findGPU finds the GPU in the inventory. A GPU that is missing there is lost, like one that does not respond. While no driver is loaded, all
// are lost, and the error names the driver.
func findGPU(node gpu.Node, name string) reading {
	found, err := node.Find(name)
	switch {
	case err != nil:
		return reading{name: name, unread: fmt.Errorf("%w: %w", err, gpu.ErrLost)}
	case found.Lost && slices.ContainsFunc(found.Faults, func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver && f.InEffect() }):
		return reading{name: name, unread: fmt.Errorf("the driver of GPU %s does not respond: %w: %w", name, gpu.ErrNoDriver, gpu.ErrLost)}
	case found.Lost:
		return reading{name: name, unread: fmt.Errorf("GPU %s does not respond: %w", name, gpu.ErrLost)}
	}
	found.Instances = nil
	return reading{GPU: found, name: name}
}

// readGPU reads MIG mode, MIG profiles and MIG devices from the hardware. The profiles depend on the mode.
func (p *Preparer) readGPU(ctx context.Context, r reading) reading {
	if r.Geometry == nil {
		return r
	}
	var err error
	if r.Mode, err = p.Modes.Mode(ctx, r.name); err != nil {
		return reading{name: r.name, unread: fmt.Errorf("read the MIG mode of %s: %w", r.name, err)}
	}
	if r.Geometry, err = p.Instances.Geometry(ctx, r.name); err != nil {
		return reading{name: r.name, unread: fmt.Errorf("read the MIG profiles of %s: %w", r.name, err)}
	}
	if r.Instances, err = p.Instances.List(ctx, r.name); err != nil {
		return reading{name: r.name, unread: fmt.Errorf("read the instances of %s: %w", r.name, err)}
	}
	return r
}
