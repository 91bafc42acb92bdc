package main

import (
	"testing"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// TestExplainedPodStaysPending: the demo names a pod for `tessera explain`, and only a pod that is not bound to a node has something to explain.
func TestExplainedPodStaysPending(t *testing.T) {
	examples, err := readExamples()
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		for _, subject := range example.Subjects {
			if subject.Kind == "Pod" && subject.Namespace == "default" && subject.Name == pendingPod {
				if subject.Expectation.Phase != expect.Pending {
					t.Errorf("%s in %s is expected to be %s", subject, example.File, subject.Expectation.Phase)
				}
				return
			}
		}
	}
	t.Errorf("no example has a pod %s", pendingPod)
}
