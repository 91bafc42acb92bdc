package scheduler

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestLeaderChanges kills the leading scheduler in the middle of a stream of pods, twice.
func TestLeaderChanges(t *testing.T) {
	const batch, leaders = 8, 3
	nodes(t, "h100x2", "h100x2")
	t.Cleanup(func() { vacate(t) })
	leading := launch(t, task{Identity: "leader-0", Kill: "before POST pods/binding", Nth: batch / 2})
	for n := range leaders {
		holds(t, fmt.Sprintf("leader-%d", n))
		next := task{Identity: fmt.Sprintf("leader-%d", n+1)}
		if n+1 < leaders-1 {
			next.Kill, next.Nth = "after PUT resourceclaims/status", batch/2
		}
		waiting := leading
		if n < leaders-1 {
			waiting = launch(t, next)
		}
		for i := range batch {
			run(t, fmt.Sprintf("small-%d-%d", n, i), smallClass, 1)
		}
		if n < leaders-1 {
			<-leading.Ended
			audit(t)
			vacate(t)
		}
		leading = waiting
	}
	bound(t, batch*leaders)
	audit(t)
	nothingAssumed(t)
	if err := leading.Alive(); err != nil {
		t.Error(err)
	}
}

// vacate takes the lease from the leader, which is dead, so that the next one need not wait until it runs out.
func vacate(t *testing.T) {
	t.Helper()
	leases, released := shared.Client.CoordinationV1().Leases(namespace), []byte(`{"spec":{"holderIdentity":null}}`)
	if _, err := leases.Patch(context.WithoutCancel(t.Context()), leaseName, types.MergePatchType, released, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// holds waits until the identity is the leader.
func holds(t *testing.T, identity string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		lease, err := shared.Client.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != identity {
			return fmt.Errorf("the leader is not %s yet", identity)
		}
		return nil
	})
}
