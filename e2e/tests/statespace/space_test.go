package statespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A counter that can be doubled or increased up to ten: each number is found once, on the shortest way.
func TestSpace(t *testing.T) {
	s := New("count", 1)
	limited := func(next func(int) int) func(*int) bool {
		return func(n *int) bool {
			*n = next(*n)
			return *n <= 10
		}
	}
	var order []int
	for n, state := range s.All() {
		order = append(order, state)
		s.Try(n, state, "double", limited(func(i int) int { return 2 * i }))
		if happens := s.Try(n, state, "increase", limited(func(i int) int { return i + 1 })); happens != (state < 10) {
			t.Errorf("increasing %d happens: %t", state, happens)
		}
	}
	if diff := cmp.Diff([]int{1, 2, 4, 3, 8, 5, 6, 9, 10, 7}, order); diff != "" || s.Len() != 10 {
		t.Errorf("%d states: %s", s.Len(), diff)
	}
	f := s.Finding("too many", 8, 11, "once more")
	if got, want := f.Error(), "too many\n  count\n  start\n  double\n  double\n  increase\n  double\n  once more\n  at 11"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
