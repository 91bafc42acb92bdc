package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// crowd creates pods of every kind: slices, a whole GPU, shares, extended resources, two pods with one claim.
// It returns how many.
func crowd(t *testing.T) int {
	t.Helper()
	run(t, "whole", wholeClass, 1)
	run(t, "pair", smallClass, 2)
	mustCreate(t, claim("two", request(largeClass, 1), request(smallClass, 1)), pod("two", "two"))
	mustCreate(t, claim("both", request(sharedClass, 1)), pod("both-1", "both"), pod("both-2", "both"))
	for i := range 3 {
		mustCreate(t, wants(fmt.Sprintf("extended-%d", i), smallName))
	}
	return 8
}

// TestKilled kills the scheduler at every place. The next one binds every pod, nothing is held twice and
// nothing stays assumed.
func TestKilled(t *testing.T) {
	nodes(t, "h100x2", "h100x2")
	var tasks []task
	for _, place := range []string{
		"PreFilter", "Filter", "PreScore", "Score", "Reserve", "PreBind", "PostBind",
		"PUT resourceclaims", "POST resourceclaims", "PUT resourceclaims/status", "PATCH pods/status", "POST pods/binding",
	} {
		tasks = append(tasks, task{Kill: "before " + place, Nth: 2}, task{Kill: "after " + place, Nth: 2})
	}
	for _, write := range []string{"PUT resourceclaims", "PUT resourceclaims/status", "POST pods/binding"} {
		for _, place := range []string{"before Unreserve", "after Unreserve"} {
			tasks = append(tasks, task{Kill: place, Nth: 1, Fail: write})
		}
	}
	for _, todo := range tasks {
		name := todo.Kill
		if todo.Fail != "" {
			name += " of a failed " + todo.Fail
		}
		t.Run(name, func(t *testing.T) {
			pods := crowd(t)
			p := launch(t, todo)
			select {
			case <-p.Ended:
			case <-time.After(harness.Patience):
				t.Fatal("the scheduler does not come there")
			}
			if state := p.Cmd.ProcessState.String(); state != "signal: killed" {
				t.Fatalf("the scheduler ended with %q", state)
			}
			audit(t)
			defer schedule(t, untouched).stop()
			bound(t, pods)
			audit(t)
			nothingAssumed(t)
		})
	}
}
