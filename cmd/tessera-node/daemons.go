package main

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/mps"
)

// daemons returns the component that runs the MPS daemons of the node in pods.
func (c config) daemons(client kubernetes.Interface) *mps.Pods {
	needs := []string{c.Roots.Host, c.Roots.Proc, c.Roots.Sys, c.Roots.Dev, c.Roots.Driver, "/dev"}
	var args []string
	if c.file != "" {
		needs, args = append(needs, c.file), append(args, "--config="+c.file)
	}
	return mps.New(mps.Config{
		Node: c.node, Client: client, Namespace: c.namespace, Pod: c.pod,
		Dir: c.mps, KubeletPods: filepath.Join(filepath.Dir(c.plugins), "pods"), Needs: needs, Args: args,
	})
}

const (
	// daemonPeriod is the interval at which the states of the daemons are read. CUDA programs fail with their daemon, and the claim
	// of a pod that ends can be deleted before the Event is written. kubelet checks pods once per second.
	daemonPeriod = 250 * time.Millisecond
	// noDaemonPeriod replaces it while there are none. A daemon is listed from before its pod is created, and a pod takes about a
	// second to start.
	noDaemonPeriod = time.Second
)

// watchDaemons follows the daemons until ctx ends. Restarts while no agent runs are not reported.
func (a *agent) watchDaemons(ctx context.Context) error {
	known := map[string]watched{}
	return a.liveness.Repeat(ctx, func(ctx context.Context) time.Duration {
		known = a.followAll(ctx, known)
		if len(known) == 0 {
			return noDaemonPeriod
		}
		return daemonPeriod
	})
}

// followAll reports the restart of a daemon in the status of its claims, and requests a reconciliation after one stopped serving,
// because its pod can be missing. It compares the daemons with what was observed before, and returns what is observed now.
func (a *agent) followAll(ctx context.Context, before map[string]watched) map[string]watched {
	states, err := a.daemons.States()
	if err != nil {
		klog.FromContext(ctx).Error(err, "MPS daemons not listed, retrying")
	}
	now := map[string]watched{}
	for _, s := range states {
		now[s.Name] = a.follow(ctx, before[s.Name], s)
	}
	for name, b := range before {
		if _, listed := now[name]; !listed && b.Serving {
			a.requestReconcile()
		}
	}
	return now
}

// watched is the observed state of a daemon.
type watched struct {
	mps.State
	// served is when the daemon last started to serve; zero if it was never observed serving.
	served time.Time
}

// follow compares two observations of a daemon and returns the one to keep.
func (a *agent) follow(ctx context.Context, before watched, now mps.State) watched {
	switch {
	case now.Since.IsZero(): // has never served
		return watched{State: now}
	case !now.Serving:
		// A daemon that served for less than daemonPeriod is detected by its Since alone.
		if before.Serving || !now.Since.Equal(before.Since) {
			a.requestReconcile()
		}
		return watched{State: now, served: before.served}
	case !before.served.IsZero() && !before.served.Equal(now.Since):
		a.reportRestart(ctx, before, now)
	}
	return watched{State: now, served: now.Since}
}

// reportRestart reports the restart of a daemon in the status of its claims.
func (a *agent) reportRestart(ctx context.Context, before watched, now mps.State) {
	reason := "its pod ended"
	if now.LastErrorAt.After(before.served) {
		reason = now.LastError
	}
	users, err := a.preparer.DaemonUsers(now.Name)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The restart of an MPS daemon is not reported in the status of its claims", "daemon", now.Name)
	}
	a.status.DaemonRestarted(now.Name, users, reason)
}

// requestReconcile requests a reconciliation of the claims. It does not block.
func (a *agent) requestReconcile() {
	select {
	case a.reconcileNow <- struct{}{}:
	default: // already requested
	}
}
