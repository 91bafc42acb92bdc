package agent

import (
	"context"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// kubelet is kubelet's connection to one agent.
type kubelet struct {
	node   *node
	client *harness.Kubelet
}

// connect registers the agent, as kubelet does when it finds the agent's registration socket.
func (a *agent) connect() *kubelet {
	a.node.t.Helper()
	k := &kubelet{node: a.node}
	a.node.eventually("kubelet finds the plugin", func(ctx context.Context) (err error) {
		k.client, err = a.Register(ctx)
		return err
	})
	a.node.t.Cleanup(k.client.Close)
	return k
}

// prepare prepares one claim, as kubelet does. It returns the devices, or the error of the call or of the claim.
func (k *kubelet) prepare(claim *drapb.Claim) (devices []*drapb.Device, err error) {
	err = k.call(func(ctx context.Context) (err error) {
		devices, err = k.client.Prepare(ctx, claim)
		return err
	})
	return devices, err
}

// unprepare unprepares one claim, as kubelet does.
func (k *kubelet) unprepare(claim *drapb.Claim) error {
	return k.call(func(ctx context.Context) error { return k.client.Unprepare(ctx, claim) })
}

// call performs a call. A call that failed late is repeated, as kubelet does: a busy machine may be interrupted for
// longer than the timeouts of a call.
func (k *kubelet) call(once func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(k.node.t.Context(), harness.Patience)
	defer cancel()
	for {
		begin := time.Now()
		if err := once(ctx); err == nil || time.Since(begin) <= soon || ctx.Err() != nil {
			return err
		}
	}
}

// mustPrepare prepares a claim and fails the test with an error.
func (k *kubelet) mustPrepare(claim *drapb.Claim) []*drapb.Device {
	k.node.t.Helper()
	devices, err := k.prepare(claim)
	if err != nil {
		k.node.t.Fatalf("prepare %s: %v", claim.GetName(), err)
	}
	return devices
}

// eventuallyPrepares repeats the call until the claim is prepared, as kubelet does.
func (k *kubelet) eventuallyPrepares(what string, claim *drapb.Claim) {
	k.node.t.Helper()
	k.node.eventually(what, func(ctx context.Context) error { _, err := k.client.Prepare(ctx, claim); return err })
}

func (k *kubelet) mustUnprepare(claim *drapb.Claim) {
	k.node.t.Helper()
	if err := k.unprepare(claim); err != nil {
		k.node.t.Fatalf("unprepare %s: %v", claim.GetName(), err)
	}
}

// change modifies a claim before it is created or, for the status, before the status is written.
type change = harness.Change

// claim creates a claim that holds the devices of the node, in the state in which the scheduler leaves it.
func (n *node) claim(name string, devices []gpu.Device, changes ...change) *drapb.Claim {
	n.t.Helper()
	claim, err := n.host.Claim(n.t.Context(), name, devices, changes...)
	n.must(err)
	return claim
}

// whole returns the whole GPU at the index, slice the MIG placement of the profile there.
func (n *node) whole(index int) gpu.Device { return n.host.Whole(index) }

func (n *node) slice(index, profile, start int) gpu.Device {
	n.t.Helper()
	device, err := n.host.Slice(index, profile, start)
	n.must(err)
	return device
}
