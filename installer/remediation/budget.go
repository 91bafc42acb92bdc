package remediation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Key names a GPU of the cluster.
type Key struct{ Node, GPU string }

// Candidate is a GPU that asks for a place in the budget, or has one.
type Candidate struct {
	Key
	// Begun is whether the GPU is taken out already: it keeps its place.
	Begun bool
	// Severity and Since are those of its worst fault.
	Severity gpu.Severity
	Since    time.Time
}

// Grant says which GPUs may be out of service for a remedy: those that are, and of the others the worst and longest ill, up to maxParallel.
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

// first orders what is so before what is not.
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

// Candidate says how the GPU stands to the budget; false: it asks for nothing. A GPU that waits for a reboot or a person has given its place
// back, and needs none for the proof that follows. Granted does not count here.
func (o Observed) Candidate(node string) (Candidate, bool) { return o.candidate(node, ordered) }

func (o Observed) candidate(node string, table []rule) (Candidate, bool) {
	v := viewOf(&o)
	c := Candidate{Key: Key{node, o.GPU}, Begun: v.forgot() || v.begun() && v.stands.BootID == ""}
	for i, f := range o.Faults {
		c.Severity = max(c.Severity, severityOf(f))
		if i == 0 || f.Since.Time.Before(c.Since) {
			c.Since = f.Since.Time
		}
	}
	o.Granted = true
	return c, c.Begun || !v.begun() && decide(&o, table).Action == Direct
}
