package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

// The scheduler runs where the API server serves DeviceTaintRules and the release has an image for its version.
func TestSchedulerNeedsAnImage(t *testing.T) {
	access := &rest.Config{Host: capabilitytest.Serve(t, capabilitytest.Kubernetes137())}
	for reason, want := range map[string]bool{"": true, "the API server had version v1.39.1": false} {
		server, err := readServer(access, render.Images{NoScheduler: reason})
		if err != nil || server.Scheduler() != want {
			t.Errorf("reason %q: scheduler %t, %v", reason, server.Scheduler(), err)
		}
	}
}

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
