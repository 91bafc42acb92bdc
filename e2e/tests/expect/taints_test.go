package expect

import "testing"

// TestNoFences: a node without slices says nothing of its devices.
func TestNoFences(t *testing.T) {
	if ReadFences(nil).Whole {
		t.Error("a pool that is not there is whole")
	}
}
