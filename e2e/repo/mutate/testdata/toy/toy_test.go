package toy

import "testing"

// The test does not look at calls.
func TestFind(t *testing.T) {
	for what, want := range map[int]int{3: 0, 5: 1, 0: -1, 7: -1, -1: -1} {
		at, err := Find([]int{3, 5, 0}, what)
		if (err != nil) != (want < 0) || err == nil && at != want || (err == errAbsent) != (want < 0 && what >= 0) {
			t.Errorf("%d is at %d, %v", what, at, err)
		}
	}
}
