package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/installer/controller/trigger"
)

// Of several installers one works at a time: the manager elects a leader by the lease in the installer's namespace, and releases it when it ends. Only a
// single installer without the option works without the lease.
func TestManagerElectsALeader(t *testing.T) {
	for _, elect := range []bool{true, false} {
		o := managerOptions(t.Context(), Config{Namespace: "own", LeaderElect: elect, MetricsAddress: "0"}, runtime.NewScheme())
		if o.LeaderElection != elect || o.LeaderElectionID != Lease || o.LeaderElectionNamespace != "own" || !o.LeaderElectionReleaseOnCancel {
			t.Errorf("with election %t: election %t by the lease %s/%s, released %t", elect, o.LeaderElection, o.LeaderElectionNamespace, o.LeaderElectionID,
				o.LeaderElectionReleaseOnCancel)
		}
		if o.Controller.NeedLeaderElection != nil && !*o.Controller.NeedLeaderElection {
			t.Error("controllers work without the lease")
		}
		if o.Metrics.BindAddress != "0" {
			t.Errorf("metrics are served on %q", o.Metrics.BindAddress)
		}
	}
}

// The context of every reconcile ends before the reconcile counts as hung: requests that are repeated for long do not restart the installer.
func TestManagerEndsReconcilesBeforeTheyHang(t *testing.T) {
	if limit := managerOptions(t.Context(), Config{}, runtime.NewScheme()).Controller.ReconciliationTimeout; limit == 0 || limit >= trigger.HangLimit {
		t.Errorf("reconciles end after %v, and hang after %v", limit, trigger.HangLimit)
	}
}
