package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// rules rank three XIDs, each worse than the one before, so that every one of them changes the published
// taints.
const rules = `health:
  xids:
  - {code: 901, severity: Warning, remedy: Reset}
  - {code: 902, severity: Critical, remedy: Reset}
  - {code: 903, severity: Fatal, remedy: Reset}
`

// bench is one run.
type bench struct {
	*testbed.Bed
	options
	// adjustable is the agent with the build tag crashtest, which accepts the interval of its checks as a
	// setting.
	adjustable string
	agents     int
}

// run starts an agent on the host and waits until kubelet is connected and the pool is published.
func (b *bench) run(ctx context.Context, h *harness.Host, program string, environment ...string) (*harness.Agent, *harness.Kubelet, error) {
	b.agents++
	a, err := h.Start(harness.Launch{Program: program, Hook: b.Hook, UID: fmt.Sprintf("pod-%d", b.agents), Environment: environment})
	if err != nil {
		return nil, nil, err
	}
	var k *harness.Kubelet
	err = b.Await(ctx, h, "kubelet's connection", func(ctx context.Context) (err error) { k, err = a.Register(ctx); return err })
	if err == nil {
		err = b.Await(ctx, h, "the agent to be ready", a.Ready)
	}
	if err != nil {
		a.Kill()
		return nil, nil, err
	}
	return a, k, nil
}

// pause waits for the duration.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
