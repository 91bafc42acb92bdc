package gpunode

import (
	"context"
	"slices"

	"k8s.io/klog/v2"
)

// closing reports whether calls are waited for.
func (t *term) closing() bool {
	return t.set && (t.word.ID != "" && !t.quiet || slices.ContainsFunc(t.word.Holds, func(h Hold) bool { return !t.holds(h) }))
}

// holds reports whether nobody passes any more who should not under the hold.
func (t *term) holds(h Hold) bool {
	_, known := t.silent[h.ID]
	return t.set && known
}

// obey makes the gate as it is wanted, and has GPUs reset when nothing stands in the way.
func (t *term) obey(ctx context.Context, k *Keeper, want Closure) {
	if (!t.set || !t.word.equal(want)) && !t.change(ctx, k.config, want) {
		return
	}
	quieter := false
	if t.word.ID != "" && !t.quiet {
		t.quiet = t.listen(ctx, k.config)
		quieter = t.quiet
	}
	for _, h := range t.word.Holds {
		if !t.holds(h) && t.listen(ctx, k.config, h.GPUs...) {
			t.silent[h.ID] = h
			quieter = true
		}
	}
	if quieter { // calls that ran out of time left what they had begun to the next one
		k.config.Closed()
	}
}

// listen reports whether no call is left that passed before, for claims of the GPUs or, without any, for any claim.
func (t *term) listen(ctx context.Context, c Config, gpus ...string) bool {
	quiet, err := c.Gate.quiet(gpus...)
	if err != nil {
		t.complain(ctx, "It is not known whether claims are still being prepared, trying again", err)
	}
	return quiet
}

// change sets the gate and reports whether it could.
func (t *term) change(ctx context.Context, c Config, want Closure) bool {
	before, _ := c.Gate.Word() // one that cannot be read is written anew
	if err := c.Gate.set(want); err != nil {
		t.set = false
		t.complain(ctx, "The GPUs cannot be taken out of service or back, trying again", err)
		return false
	}
	another := want.ID != t.word.ID
	// Whom the validation let through is waited for when it ends, the others were waited for before it began.
	t.quiet = t.quiet && t.set && !another && want.Validating
	t.silent = t.still(want.Holds)
	t.set, t.word = true, want
	c.Remedies.Hold(want.Held())
	if err := c.Gate.tidy(before.Holds, want.Holds); err != nil {
		t.complain(ctx, "What became of resets is kept for longer than needed", err)
	}
	if another {
		klog.FromContext(ctx).Info("The GPUs go out of service or come back", "maintenance", want.ID, "op", want.Operation, "reason", want.Reason)
	}
	if another && want.ID != "" {
		c.Closed()
	}
	return true
}

// still returns the holds under which nobody passes any more who should not, by ID, after they became these.
func (t *term) still(holds []Hold) map[string]Hold {
	silent := map[string]Hold{}
	for _, h := range holds {
		if before, known := t.silent[h.ID]; t.set && known && h.same(before) {
			silent[h.ID] = h
		}
	}
	return silent
}
