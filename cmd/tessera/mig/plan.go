package mig

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Scope is how much of a layout is meant.
type Scope int

// The scopes.
const (
	// Whole means modes and instances.
	Whole Scope = iota
	// ModeOnly means the MIG modes, whatever instances there are.
	ModeOnly
)

// change is what has to be done to one GPU so that it is as a layout wants it.
type change struct {
	gpu gpu.GPU
	// mode is the MIG mode that it needs; ModeUnsupported leaves it as it is.
	mode    gpu.Mode
	destroy []gpu.Instance
	create  []gpu.Placement
}

// none reports that nothing has to be done.
func (c change) none() bool {
	return c.mode == gpu.ModeUnsupported && len(c.destroy) == 0 && len(c.create) == 0
}

// String says what is done.
func (c change) String() string {
	text := label(c.gpu) + ":"
	if c.mode != gpu.ModeUnsupported {
		text += fmt.Sprintf(" MIG %v", c.mode)
	}
	if n := len(c.destroy); n > 0 {
		text += fmt.Sprintf(" destroy %d", n)
	}
	if len(c.create) > 0 {
		text += " create"
	}
	for _, p := range c.create {
		profile, _ := c.gpu.Geometry.Profile(p.Profile)
		text += fmt.Sprintf(" %s at %d", profile.Name, p.Start)
	}
	return text
}

// plan returns the changes for the whole machine, or every reason against them.
func (m machine) plan(targets []target, scope Scope) ([]change, error) {
	var changes []change
	var errs []error
	for _, t := range targets {
		if !t.described {
			continue
		}
		c, err := m.change(t, scope)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", label(t.gpu), err))
		case !c.none():
			changes = append(changes, c)
		}
	}
	return changes, errors.Join(errs...)
}

// change returns what the target needs; an error when it must not be done.
func (m machine) change(t target, scope Scope) (change, error) {
	c := change{gpu: t.gpu}
	if t.gpu.Lost {
		return c, fmt.Errorf("does not answer: %w", gpu.ErrLost)
	}
	fixture := m.fixture(t.gpu)
	mode := gpu.ModeDisabled
	if t.enabled {
		mode = gpu.ModeEnabled
	}
	if t.gpu.Mode != gpu.ModeUnsupported && t.gpu.Mode != mode {
		c.mode = mode
	}
	if c.mode == gpu.ModeDisabled {
		c.destroy = fixture
	} else if scope == Whole {
		var err error
		if c.destroy, c.create, err = difference(t, fixture); err != nil {
			return c, err
		}
	}
	held := m.held(t.gpu)
	switch {
	case c.none():
		return c, nil
	case len(held) > 0:
		return c, fmt.Errorf("claim %s holds %v here: end its pods first, or leave this GPU out of the layout: %w", held[0].claim, held[0].Use, gpu.ErrBusy)
	case c.mode != gpu.ModeUnsupported && !t.gpu.TogglesMIG():
		return c, needsReset(t.gpu, c.mode)
	}
	return c, nil
}

// needsReset says what an administrator has to do where the mode does not change at run time.
func needsReset(g gpu.GPU, mode gpu.Mode) error {
	number := 0
	if mode == gpu.ModeEnabled {
		number = 1
	}
	if g.Pending == mode {
		return fmt.Errorf("MIG %v is pending and needs a reset of the GPU: drain the node and reboot it: %w", mode, gpu.ErrUnsupported)
	}
	return fmt.Errorf("MIG %v needs a reset of the GPU: drain the node, set the mode (nvidia-smi -i %s -mig %d) and reboot: %w", mode, g.UUID, number, gpu.ErrUnsupported)
}

// difference returns which of the instances go and which placements come. Instances that are wanted stay
// where they are, unless the others then find no place.
func difference(t target, there []gpu.Instance) (destroy []gpu.Instance, create []gpu.Placement, err error) {
	kept := keep(t, there)
	create, err = t.layout(kept)
	if err != nil {
		// Only what was asked for at its place stays; the target was checked to fit an empty GPU.
		kept = keep(target{gpu: t.gpu, fixed: t.fixed}, there)
		if create, err = t.layout(kept); err != nil {
			return nil, nil, err
		}
	}
	destroy = slices.DeleteFunc(slices.Clone(there), func(i gpu.Instance) bool { return slices.Contains(kept, i) })
	return destroy, create, nil
}

// keep returns the instances that the target wants: those at given places first, then as many as wanted of
// each profile.
func keep(t target, there []gpu.Instance) []gpu.Instance {
	var kept []gpu.Instance
	wanted := slices.Clone(t.wanted)
	for _, i := range there {
		profile, err := t.gpu.Geometry.Legal(i.Placement)
		if err != nil || i.Verify(profile, i.Placement) != nil {
			continue
		}
		if slices.Contains(t.fixed, i.Placement) {
			kept = append(kept, i)
		} else if n := slices.Index(wanted, i.Placement.Profile); n >= 0 && !overlaps(i.Placement, t.fixed) {
			kept = append(kept, i)
			wanted = slices.Delete(wanted, n, n+1)
		}
	}
	return kept
}

func overlaps(p gpu.Placement, others []gpu.Placement) bool {
	return slices.ContainsFunc(others, func(other gpu.Placement) bool { return p.Mask().Overlaps(other.Mask()) })
}

// layout returns the placements of what the target wants besides the instances that stay.
func (t target) layout(kept []gpu.Instance) ([]gpu.Placement, error) {
	o := t.gpu.Geometry.Empty()
	var missing []gpu.Placement
	wanted := slices.Clone(t.wanted)
	for _, i := range kept {
		var err error
		if o, err = o.Take(gpu.Use{Shape: gpu.MIG, Placement: i.Placement}); err != nil {
			return nil, err
		}
		if n := slices.Index(wanted, i.Placement.Profile); n >= 0 && !slices.Contains(t.fixed, i.Placement) {
			wanted = slices.Delete(wanted, n, n+1)
		}
	}
	for _, p := range t.fixed {
		if slices.ContainsFunc(kept, func(i gpu.Instance) bool { return i.Placement == p }) {
			continue
		}
		var err error
		if o, err = o.Take(gpu.Use{Shape: gpu.MIG, Placement: p}); err != nil {
			return nil, err
		}
		missing = append(missing, p)
	}
	rest, err := t.gpu.Geometry.Layout(o, wanted)
	return append(missing, rest...), err
}
