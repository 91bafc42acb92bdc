package gpu

import "slices"

// Missed returns the GPUs, by name, of which something is remembered from other boots and nothing from this one: if one of them is not on the node
// now, it was taken out, or is dead beyond being seen, while the node was off.
func (h Health) Missed(boot string) []string {
	var missed []string
	for _, f := range h.Faults {
		if !slices.Contains(missed, f.GPU) && !h.met(f.GPU, boot) {
			missed = append(missed, f.GPU)
		}
	}
	return missed
}

// met reports whether anything is remembered of the GPU from the boot.
func (h Health) met(name, boot string) bool {
	_, linked := h.Links[name]
	_, reset := h.Resets[name]
	return h.Boot == boot && (linked || reset) || slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.GPU == name && f.Boot == boot })
}

// Without forgets the faults of a GPU.
func (h Health) Without(name string) Health {
	h.Faults = slices.DeleteFunc(slices.Clone(h.Faults), func(f Fault) bool { return f.GPU == name })
	if len(h.Faults) == 0 {
		h.Faults = nil
	}
	return h
}
