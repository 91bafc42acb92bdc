package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// heartbeat is the interval at which kubelet writes the status of an unchanged node (nodeStatusReportFrequency).
const heartbeat = 5 * time.Minute

// rest counts requests while only the heartbeats of nodes are written.
func (b *bench) rest(ctx context.Context, s *stage) error {
	if err := b.calm(ctx, s); err != nil {
		return err
	}
	b.Doing("counting for %v", b.quiet)
	stop := s.beat(ctx, b.nodes)
	defer stop()
	from := time.Now()
	worked, err := s.installer.Worked()
	if err = errors.Join(err, s.installer.Alive()); err != nil {
		return err
	}
	if err := sleep(ctx, b.quiet); err != nil {
		return err
	}
	after, err := s.installer.Worked()
	if err != nil {
		return err
	}
	c, err := s.audit.between(ctx, from, time.Now())
	if err != nil {
		return err
	}
	minutes := b.quiet.Minutes()
	b.Add(
		report.Figure("at rest, writes except the lease", float64(c.Writes)/minutes, "1/min").AtMost(0).Peer(theirs, theirsHealthy),
		report.Figure("at rest, reads", float64(c.Reads)/minutes, "1/min").AtMost(0),
		report.Figure("at rest, watches opened again", float64(c.Watches)/minutes, "1/min"),
		report.Figure("at rest, lease", float64(c.Lease)/minutes, "1/min"),
		report.Figure("at rest, processor", 100*(after-worked).Seconds()/b.quiet.Seconds(), "% of a core"),
	)
	if c.total() > 0 {
		b.Note("at rest: %v", c.Kinds)
	}
	return errors.Join(s.players.err(), s.installer.Alive())
}

// calm waits until the effects of the previous steps are over: no write for a while.
func (b *bench) calm(ctx context.Context, s *stage) error {
	const tries, span = 24, 5 * time.Second
	b.Doing("waiting until nothing happens")
	for range tries {
		from := time.Now()
		if err := sleep(ctx, span); err != nil {
			return err
		}
		c, err := s.audit.between(ctx, from, time.Now())
		if err != nil {
			return err
		}
		if c.Writes == 0 {
			return nil
		}
	}
	b.Note("the installer did not come to rest within %v", tries*span)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// beat writes the heartbeats of all nodes, one node after the other, until it is stopped.
func (s *stage) beat(ctx context.Context, nodes int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(heartbeat / time.Duration(nodes))
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % nodes {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.players.note(s.alive(ctx, nodeName(i)))
			}
		}
	}()
	return func() { cancel(); <-done }
}

// alive writes the node's Ready condition with the current time.
func (s *stage) alive(ctx context.Context, name string) error {
	text, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": corev1.NodeReady, "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)},
	}}})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Nodes().PatchStatus(ctx, name, text)
	return err
}
