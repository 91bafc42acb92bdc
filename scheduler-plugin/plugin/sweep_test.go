package plugin

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestDelegationEndsWithItsTime evaluates nodes one after the other until the time of the attempt is used up.
func TestDelegationEndsWithItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDelegation(100 * time.Millisecond)
		evaluated := 0
		for range 10 {
			ctx, end, ok := d.start(t.Context())
			if !ok {
				continue
			}
			evaluated++
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
			if most := end(); most {
				t.Errorf("node %d had most of the time", evaluated)
			}
		}
		if evaluated != 4 || d.took() != 100*time.Millisecond {
			t.Errorf("%d nodes were started and took %s, want 4 and 100ms", evaluated, d.took())
		}
	})
}

// TestDelegationNamesTheNodeThatTakesTheTime evaluates a node that does not end.
func TestDelegationNamesTheNodeThatTakesTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDelegation(100 * time.Millisecond)
		ctx, end, _ := d.start(t.Context())
		<-ctx.Done()
		if !end() {
			t.Error("the node that took all of the time is not known as such")
		}
		if _, _, ok := d.start(t.Context()); ok {
			t.Error("another node is started after the time is used up")
		}
	})
}

// TestSweepPassesOverNodesOfEarlierAttempts evaluates nodes over several attempts, of which each has time for one.
func TestSweepPassesOverNodesOfEarlierAttempts(t *testing.T) {
	t.Parallel()
	all := newSweeps()
	nodes := []string{"a", "b", "c"}
	attempt := func() string {
		s := all.continued("pod")
		for _, node := range nodes {
			if _, ok := s.result(node, 1); !ok {
				s.record(node, sweptNode{revision: 1})
				all.keep("pod", s)
				return node
			}
		}
		all.end("pod")
		return ""
	}
	for _, want := range append(nodes, "", "a") {
		if got := attempt(); got != want {
			t.Errorf("the attempt evaluates %q, want %q", got, want)
		}
	}
	if _, ok := all.continued("pod").result("a", 2); ok {
		t.Error("a result is used although the node has changed")
	}
	if _, ok := all.continued("other").result("a", 1); ok {
		t.Error("a result is used for another pod")
	}
}
