package gpu

import "slices"

// Missed returns the names of the GPUs that have faults from other boots and no record from this one. Such a GPU, if it is not
// on the node now, was removed, or failed completely, while the node was off.
func (h Health) Missed(boot string) []string {
	var missed []string
	for _, f := range h.Faults {
		if !slices.Contains(missed, f.GPU) && !h.met(f.GPU, boot) {
			missed = append(missed, f.GPU)
		}
	}
	return missed
}

// met reports whether h has a record of the GPU from the boot: links, a reset or a fault.
func (h Health) met(name, boot string) bool {
	_, linked := h.Links[name]
	_, reset := h.Resets[name]
	return h.Boot == boot && (linked || reset) || slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.GPU == name && f.Boot == boot })
}

// Without returns the health without the faults of the GPU.
func (h Health) Without(name string) Health {
	h.Faults = slices.DeleteFunc(slices.Clone(h.Faults), func(f Fault) bool { return f.GPU == name })
	if len(h.Faults) == 0 {
		h.Faults = nil
	}
	return h
}
