package policy

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tessera-gpu/tessera/installer/render"
)

// A node that the discovery has come to is news, for it may be the last one that the policy waits for. Other operands are seen in the phases of nodes.
func TestAvailabilityOfTheDiscovery(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set    string
		status appsv1.DaemonSetStatus
		want   bool
	}{
		"the same":                      {set: render.OperandDiscovery},
		"it is available on a node":     {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{NumberAvailable: 1}, want: true},
		"a node joins":                  {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1}, want: true},
		"a driver is available":         {set: "tessera-driver", status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, NumberAvailable: 1}},
		"an edit of a driver was taken": {set: "tessera-driver", status: appsv1.DaemonSetStatus{ObservedGeneration: 1}, want: true},
	}
	for name, test := range tests {
		old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: test.set}}
		now := old.DeepCopy()
		now.Status = test.status
		if got := workloadChanged().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
