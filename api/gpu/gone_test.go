package gpu

import (
	"slices"
	"testing"
	"time"
)

// TestMissed checks that a GPU counts as missed if none of its records is from the current boot.
func TestMissed(t *testing.T) {
	now := time.Now()
	note := func(h Health, name string, xid int, boot string) Health {
		return h.Note(Rules{}, Event{GPU: name, XID: xid, At: now}, boot)
	}
	var h Health
	for _, name := range []string{"gone", "linked", "reset", "new"} {
		h = note(note(h, name, 79, "boot-1"), name, 48, "boot-1")
	}
	if got := h.Missed("boot-1"); len(got) != 0 {
		t.Errorf("in the same boot: %v", got)
	}
	h = note(h, "new", 13, "boot-2").Reset([]string{"reset"}, now, "boot-2")
	h = h.Check(Rules{}, Checkup{GPU: "linked", UUID: "GPU-a", At: now, Conditions: []Condition{{Signal: SignalNVLink, Links: 18}}}, "boot-2")
	if got := h.Missed("boot-2"); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("in another boot: %v", got)
	}
	if got := h.Missed("boot-3"); len(got) != 4 {
		t.Errorf("in a third one: %v", got)
	}
	before := len(h.Faults)
	without := h.Without("gone")
	if len(h.Faults) != before || len(without.Faults) != before-2 || slices.ContainsFunc(without.Faults, func(f Fault) bool { return f.GPU == "gone" }) {
		t.Errorf("without one: %v", without.Faults)
	}
}
