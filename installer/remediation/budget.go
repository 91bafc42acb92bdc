package remediation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Key identifies a GPU of the cluster.
type Key struct{ Node, GPU string }

// Candidate is a GPU that requests or has a place in the budget.
type Candidate struct {
	Key
	// Begun reports whether the GPU is already out of service. It keeps its place.
	Begun bool
	// Severity is that of its worst fault, Since the start of its oldest fault.
	Severity gpu.Severity
	Since    time.Time
}

// Grant returns the GPUs that may be out of service: those that already are, and of the others the most severe and oldest, up to maxParallel in
// total.
func Grant(candidates []Candidate, maxParallel int) map[Key]bool {
	order := slices.Clone(candidates)
	slices.SortStableFunc(order, func(a, b Candidate) int {
		return cmp.Or(first(a.Begun, b.Begun), int(b.Severity-a.Severity), a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node), cmp.Compare(a.GPU, b.GPU))
	})
	granted := map[Key]bool{}
	for _, c := range order {
		if c.Begun || len(granted) < maxParallel {
			granted[c.Key] = true
		}
	}
	return granted
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// Candidate returns the GPU's request for the budget, and false if it has none. A GPU that waits for a reboot or an administrator has returned its
// place and needs none for the validation that follows. Granted is ignored.
func (o Observed) Candidate(node string) (Candidate, bool) { return o.candidate(node, ordered) }

func (o Observed) candidate(node string, table []rule) (Candidate, bool) {
	v := viewOf(&o)
	c := Candidate{Key: Key{node, o.GPU}, Begun: v.statusLost() || v.begun() && v.current.BootID == ""}
	for i, f := range o.Faults {
		c.Severity = max(c.Severity, severityOf(f))
		if i == 0 || f.Since.Time.Before(c.Since) {
			c.Since = f.Since.Time
		}
	}
	o.Granted = true
	return c, c.Begun || !v.begun() && decide(&o, table).Action == Direct
}
