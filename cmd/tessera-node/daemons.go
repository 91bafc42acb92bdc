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
	known := map[string]mps.State{}
	for {
		states, err := a.daemons.States()
		if err != nil {
			klog.FromContext(ctx).Error(err, "The MPS daemons cannot be looked at")
		}
		now := map[string]mps.State{}
		for _, s := range states {
			now[s.Name] = s
			if before, seen := known[s.Name]; seen {
				now[s.Name] = a.follow(ctx, before, s)
			}
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

// follow compares two looks at a daemon and returns what to remember: as long as it does not serve, when
// it last did.
func (a *agent) follow(ctx context.Context, before, now mps.State) mps.State {
	switch {
	case !now.Serving:
		if before.Serving {
			a.disturb()
		}
		if !now.Since.IsZero() { // else it is a new one
			now.Since = before.Since
		}
	case before.Since.IsZero(): // it serves for the first time
	case !before.Since.Equal(now.Since):
		reason := "its pod was ended"
		if now.LastErrorAt.After(before.Since) {
			reason = now.LastError
		}
		users, err := a.preparer.Users(now.Name)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The users of an MPS daemon cannot be told that it was started anew", "daemon", now.Name)
		}
		a.status.DaemonRestarted(now.Name, users, reason)
	}
	return now
}

// disturb has the claims brought in order soon.
func (a *agent) disturb() {
	select {
	case a.disturbed <- struct{}{}:
	default: // somebody said so already
	}
}
