package mig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// machine is a node's GPUs as the hardware answers, with what a layout needs to know besides.
type machine struct {
	node gpu.Node
	// models are the PCI ids of the GPUs by name.
	models map[string]uint32
	// holds are what claims hold.
	holds []hold
}

// hold is what a claim has of a GPU.
type hold struct {
	claim string
	gpu.Device
}

// target is what an entry wants of one GPU. A GPU that no entry describes has none.
type target struct {
	gpu gpu.GPU
	// described reports that an entry means the GPU.
	described bool
	enabled   bool
	// fixed are instances at given places, wanted the profiles of the others.
	fixed  []gpu.Placement
	wanted []int
}

// targets returns what the entries want, GPU by GPU.
func (m machine) targets(entries []Entry) ([]target, error) {
	for i, e := range entries {
		for _, index := range e.Devices.Indices {
			if index >= len(m.node.GPUs) {
				return nil, fmt.Errorf("entry %d: devices: GPU %d: the node has %d GPUs", i, index, len(m.node.GPUs))
			}
		}
	}
	targets := make([]target, len(m.node.GPUs))
	for n, g := range m.node.GPUs {
		targets[n].gpu = g
		by := -1
		for i, e := range entries {
			if !e.means(g.Index, m.models[g.Name()]) {
				continue
			}
			if by >= 0 {
				return nil, fmt.Errorf("%s: described by entries %d and %d, must be by one", label(g), by, i)
			}
			by = i
			var err error
			if targets[n], err = e.target(g); err != nil {
				return nil, fmt.Errorf("%s: %w", label(g), err)
			}
		}
	}
	return targets, nil
}

// means reports whether the entry describes the GPU.
func (e Entry) means(index int, model uint32) bool {
	matches := len(e.Filter) == 0 || slices.ContainsFunc(e.Filter, func(text string) bool {
		id, err := parseID(text)
		return err == nil && id == model
	})
	return matches && (e.Devices.All || slices.Contains(e.Devices.Indices, index))
}

// target returns what the entry wants of the GPU. A GPU without MIG is passed over when all are meant.
func (e Entry) target(g gpu.GPU) (target, error) {
	t := target{gpu: g, described: true, enabled: *e.Enabled}
	switch {
	case !t.enabled:
		return t, nil
	case g.Geometry.Slices() == 0 && e.Devices.All:
		t.enabled = false
		return t, nil
	case g.Geometry.Slices() == 0:
		return t, fmt.Errorf("mig-enabled: %s has no MIG: %w", g.Product, gpu.ErrUnsupported)
	}
	o := g.Geometry.Empty()
	for _, name := range slices.Sorted(maps.Keys(e.Instances)) {
		profile, err := find(g, name)
		if err != nil {
			return t, err
		}
		amount := e.Instances[name]
		for _, start := range amount.Starts {
			p := gpu.Placement{Profile: profile.ID, Start: start, Size: profile.Size}
			if o, err = o.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err != nil {
				return t, fmt.Errorf("mig-devices[%s] at slice %d: %w", name, start, err)
			}
			t.fixed = append(t.fixed, p)
		}
		if amount.Starts == nil {
			t.wanted = append(t.wanted, slices.Repeat([]int{profile.ID}, min(amount.Count, gpu.MaxSlices+1))...)
		}
	}
	if _, err := g.Geometry.Layout(o, t.wanted); err != nil {
		return t, fmt.Errorf("mig-devices: %w", err)
	}
	return t, nil
}

func find(g gpu.GPU, name string) (gpu.Profile, error) {
	var names []string
	for _, p := range g.Geometry.Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return gpu.Profile{}, fmt.Errorf("mig-devices[%s]: %s has no such profile, only %s: %w", name, g.Product, strings.Join(names, ", "), gpu.ErrUnsupported)
}

// fixture returns the instances of the GPU that no claim holds.
func (m machine) fixture(g gpu.GPU) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(g.Instances), func(i gpu.Instance) bool {
		return slices.ContainsFunc(m.holds, func(h hold) bool {
			return h.GPU == g.Name() && h.Shape == gpu.MIG && h.Placement == i.Placement
		})
	})
}

// held returns what claims hold of the GPU.
func (m machine) held(g gpu.GPU) []hold {
	return slices.DeleteFunc(slices.Clone(m.holds), func(h hold) bool { return h.GPU != g.Name() })
}

// label names the GPU for messages.
func label(g gpu.GPU) string { return fmt.Sprintf("GPU %d (%s)", g.Index, g.Name()) }
