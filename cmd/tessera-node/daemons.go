package main

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/mps"
)

// daemons returns who runs the MPS daemons of the node.
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

// daemonPeriod is how often the daemons' states are read. Programs end with their daemon, and with a pod
// that ends the claim goes which an Event could be told about: kubelet looks once a second.
const daemonPeriod = 250 * time.Millisecond

// watchDaemons tells the users of a daemon that it was started anew, and has the claims brought in order
// when one has ceased to serve: its pod may be gone. What happens while no agent runs is not told.
func (a *agent) watchDaemons(ctx context.Context) error {
	tick := time.NewTicker(daemonPeriod)
	defer tick.Stop()
	known := map[string]watched{}
	for {
		states, err := a.daemons.States()
		if err != nil {
			klog.FromContext(ctx).Error(err, "MPS daemons not listed, retrying")
		}
		now := map[string]watched{}
		for _, s := range states {
			now[s.Name] = a.follow(ctx, known[s.Name], s)
		}
		for name, before := range known {
			if _, listed := now[name]; !listed && before.Serving {
				a.disturb()
			}
		}
		known = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watched is what a look at a daemon showed.
type watched struct {
	mps.State
	// served is since when it serves, or did when it last served; zero if it was never seen to.
	served time.Time
}

// follow compares two looks at a daemon and returns what to remember.
func (a *agent) follow(ctx context.Context, before watched, now mps.State) watched {
	switch {
	case now.Since.IsZero(): // a new one, which has never served
		return watched{State: now}
	case !now.Serving:
		// One that served for less than the time between two looks shows it by its time alone.
		if before.Serving || !now.Since.Equal(before.Since) {
			a.disturb()
		}
		return watched{State: now, served: before.served}
	case !before.served.IsZero() && !before.served.Equal(now.Since):
		a.tell(ctx, before, now)
	}
	return watched{State: now, served: now.Since}
}

// tell has the users of a daemon told that it was started anew.
func (a *agent) tell(ctx context.Context, before watched, now mps.State) {
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

// disturb has the claims brought in order soon.
func (a *agent) disturb() {
	select {
	case a.disturbed <- struct{}{}:
	default: // somebody said so already
	}
}
