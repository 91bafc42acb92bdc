package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// The GPU Operator's requests to the API server, derived by counting the calls in its source, not measured: see bench/README.md.
const (
	// theirsHealthy is a pass of its DRA stack every minute, theirsUnready a pass of the other every 5 s while one operand of one node is
	// unready.
	theirsHealthy = 145
	theirsUnready = 150 * 12
)

const theirs = "GPU Operator (derived)"

// install installs the fleet from bare nodes.
func (b *bench) install(ctx context.Context, s *stage) error {
	began, took, err := b.bring(ctx, s)
	if err != nil {
		return err
	}
	c, err := s.audit.between(ctx, began, time.Now())
	if err != nil {
		return err
	}
	b.Add(
		report.Figure("requests to install a node", b.each(c.total()), "requests"),
		report.Figure("installing the fleet", took.Seconds(), "s"),
	)
	b.Note("installing: %v", c.Kinds)
	return nil
}

// bring creates bare nodes and a policy, and waits until the nodes are Ready.
func (b *bench) bring(ctx context.Context, s *stage) (began time.Time, took time.Duration, err error) {
	b.Doing("making %d nodes", b.nodes)
	if err := b.populate(ctx, s); err != nil {
		return began, 0, err
	}
	b.Doing("installing")
	began = time.Now()
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	policy.Spec.Upgrade = unlimited()
	policy.Spec.Scheduler.Enabled = new(bool) // the lab has its own
	if err := s.Kinds.Create(ctx, policy); err != nil {
		return began, 0, err
	}
	took, err = b.await(ctx, s, "installing", b.all(v1alpha1.PhaseReady))
	return began, took, err
}

// unlimited lets all nodes proceed at once: the requests of a node do not depend on the number of concurrent nodes.
func unlimited() v1alpha1.UpgradePolicy {
	none, all := intstr.FromInt32(0), intstr.FromString("100%")
	return v1alpha1.UpgradePolicy{Canary: &none, MaxParallel: new(int32), MaxUnavailable: &all}
}

func (b *bench) all(phase v1alpha1.NodePhase) func(map[v1alpha1.NodePhase]int) bool {
	return func(phases map[v1alpha1.NodePhase]int) bool { return phases[phase] == b.nodes }
}

func (b *bench) each(n int) float64 { return float64(n) / float64(b.nodes) }

// upgrade changes the driver version of every node.
func (b *bench) upgrade(ctx context.Context, s *stage) error {
	b.Doing("upgrading")
	began := time.Now()
	if err := s.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.Version = "999.1" }); err != nil {
		return err
	}
	took, err := b.await(ctx, s, "upgrading", func(phases map[v1alpha1.NodePhase]int) bool {
		return phases[v1alpha1.PhaseReady] == b.nodes && s.upgraded(ctx, b.nodes)
	})
	if err != nil {
		return err
	}
	c, err := s.audit.between(ctx, began, time.Now())
	if err != nil {
		return err
	}
	b.Add(
		report.Figure("requests to upgrade a node", b.each(c.total()), "requests"),
		report.Figure("of them writes", b.each(c.Writes), "requests"),
		report.Figure("upgrading the fleet", took.Seconds(), "s"),
	)
	b.Note("upgrading: %v", c.Kinds)
	return nil
}

// upgraded reports whether every node has the new driver.
func (s *stage) upgraded(ctx context.Context, nodes int) bool {
	list := &v1alpha1.GPUNodeList{}
	if err := s.Kinds.List(ctx, list); err != nil {
		return false
	}
	n := 0
	for i := range list.Items {
		if driver := list.Items[i].Status.LastGoodDriver; driver != nil && driver.Version == "999.1" {
			n++
		}
	}
	return n == nodes
}

// brokenNode counts while one node's driver pod fails repeatedly.
func (b *bench) brokenNode(ctx context.Context, s *stage) error {
	b.Doing("breaking one node for %v", b.broken)
	stop, err := s.breakNode(ctx, nodeName(0))
	if err != nil {
		return err
	}
	defer stop()
	from := time.Now()
	if err := sleep(ctx, b.broken); err != nil {
		return err
	}
	c, err := s.audit.between(ctx, from, time.Now())
	if err != nil {
		return err
	}
	b.Add(report.Figure("one broken node, requests", float64(c.total())/b.broken.Minutes(), "1/min").Peer(theirs, theirsUnready))
	b.Note("one broken node: %v", c.Kinds)
	return nil
}

// The goal for the memory of the installer is one for a fleet of largest nodes, in MiB.
const (
	largest       = 5000
	largestMemory = 250
)

// inside reads the installer's own measurements.
func (b *bench) inside(ctx context.Context, s *stage) error {
	memory, err := s.installer.Memory()
	if err != nil {
		return err
	}
	row := report.Figure("memory", float64(memory)/1024, "MiB")
	if b.nodes == largest {
		row = row.AtMost(largestMemory)
	}
	b.Add(row)
	for _, controller := range []string{"node", "policy"} {
		p, err := s.reconciles(ctx, controller)
		if err != nil {
			return err
		}
		b.Add(
			report.Figure(fmt.Sprintf("reconcile of a %s, p50 at most", controller), p.median*1e3, "ms"),
			report.Figure(fmt.Sprintf("reconcile of a %s, p99 at most", controller), p.p99*1e3, "ms"),
		)
	}
	if b.settled {
		b.Note("%d nodes with one GPU each, written as copies of one that was installed, while nothing else runs; each sends its status every %v", b.nodes, heartbeat)
	} else {
		b.Note("%d nodes by kwok with one GPU each", b.nodes)
	}
	b.Note("requests counted in the API server's audit log by user agent")
	b.Note("%s: counted in its source at v26.7.0, not run: 145 requests in each minute when healthy, 150 writes every 5 s while one operand is unready", theirs)
	return nil
}
