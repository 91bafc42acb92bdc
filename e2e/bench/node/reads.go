package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/e2e/bench/audit"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// userAgent is that of the agent's requests.
const userAgent = "tessera-node"

// reads counts the agent's requests to the API server in the steady state, with the maximal number of prepared claims, whose containers run.
func (b *bench) reads(ctx context.Context) error {
	h, p, k, err := b.run(ctx, ours)
	if err != nil {
		return err
	}
	defer p.Kill()
	defer k.Close()
	claims, err := b.smallestSlices(ctx, h)
	if err != nil {
		return err
	}
	end, err := h.RunContainers(ctx, claims)
	if err != nil {
		return err
	}
	defer end()
	if err := together(claims, func(c *drapb.Claim) error { _, err := k.Prepare(ctx, c); return err }); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	b.Doing("counting its requests for %v", b.steady)
	if err := pause(ctx, settling); err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, b.steady); err != nil {
		return err
	}
	until := time.Now()
	found, err := requests(b.AuditLog, from, until)
	if err != nil {
		return err
	}
	perMinute := func(verbs ...string) float64 {
		count := 0
		for what, n := range found {
			if verb, _, _ := strings.Cut(what, " "); slices.Contains(verbs, verb) {
				count += n
			}
		}
		return float64(count) / until.Sub(from).Minutes()
	}
	b.Add(
		report.Figure(fmt.Sprintf("reads of the API server with %d claims, over %v", len(claims), b.steady), perMinute("get", "list"), "per minute").AtMost(0.1),
		report.Figure(fmt.Sprintf("watches renewed with %d claims, over %v", len(claims), b.steady), perMinute("watch"), "per minute"),
	)
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(found)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", what, found[what]))
	}
	if len(kinds) > 0 {
		b.Note("requests of the agent with %d claims, over %v: %s", len(claims), b.steady, strings.Join(kinds, ", "))
	}
	return nil
}

// requests counts the agent's requests in the audit log.
func requests(log string, from, until time.Time) (map[string]int, error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	return audit.Count(file, userAgent, from, until)
}
