package expect

import (
	"fmt"
	"slices"
)

// used holds what CUDA gave to a container against what it should give, and, for a share of a GPU under
// MPS, against what the API server says the share is.
func used(v View, c Container) []string {
	usage, ok := ParseUsage(c.Log)
	if !ok {
		if v.uses() {
			return []string{fmt.Sprintf("no report of the probe about its share in the log, it says %q", lastLines(c.Log))}
		}
		return nil
	}
	var complaints []string
	if want := v.Allocates; want != nil {
		switch got := usage.AllocatedMiB << 20; {
		case got != want.Value():
			complaints = append(complaints, fmt.Sprintf("expected CUDA to give %s, it gives %d MiB", want, usage.AllocatedMiB))
		case usage.Refused == 0:
			complaints = append(complaints, fmt.Sprintf("expected CUDA to give no more than %s, it does", want))
		}
	}
	for _, d := range usage.Devices {
		if want := v.Multiprocessors; want != nil && d.Multiprocessors != *want {
			complaints = append(complaints, fmt.Sprintf("expected CUDA to count %d multiprocessors on %s, it counts %d", *want, d.UUID, d.Multiprocessors))
		}
		complaints = append(complaints, bounded(d, c.Grants)...)
	}
	return complaints
}

// bounded demands that MPS keeps a container to its shares.
func bounded(d UsedDevice, grants []Grant) []string {
	var most int64
	for _, g := range grants {
		if g.Shape == mps && g.UUID == d.UUID {
			most += g.Share.Memory
		}
	}
	served := slices.ContainsFunc(grants, func(g Grant) bool { return g.Shape == mps && g.UUID == d.UUID })
	if !served || d.FreeMiB<<20 <= most {
		return nil
	}
	return []string{fmt.Sprintf("may allocate %d MiB on %s, was given %d", d.FreeMiB, d.UUID, most>>20)}
}
