// Package prometheus evaluates the queries of deployments/monitoring with Prometheus' engine, over scrapes of processes that run.
package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// Build builds the program of e2e/tests/promql at the path.
func Build(ctx context.Context, path string) error {
	return harness.BuildIn(ctx, "e2e/tests/promql", path, ".")
}

// Server is a Prometheus that scrapes one target.
type Server struct {
	// Program is the path of the program that Build has built.
	Program string
	// Target are the labels of the target. Those of the metrics win, as with honorLabels.
	Target map[string]string
}

// Outcome is the result of one query.
type Outcome struct {
	// Error is why it is no query.
	Error string
	// Unknown are the selectors that match nothing, because there is no such metric, or none with one of the labels.
	Unknown []string
	Samples []Sample
}

// Sample is one series of a result.
type Sample struct {
	Labels map[string]string
	Value  string
}

// interval is the time between two scrapes, in seconds.
const interval = 30

// Evaluate evaluates the queries after the scrapes, which are 30 s apart.
func (s Server) Evaluate(ctx context.Context, scrapes, queries []string) ([]Outcome, error) {
	var answer struct{ Results []Outcome }
	if err := s.run(ctx, map[string]any{"target": s.Target, "scrapes": scrapes, "interval": interval, "queries": queries}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(queries) {
		return nil, fmt.Errorf("query Prometheus: %d results for %d queries", len(answer.Results), len(queries))
	}
	return answer.Results, nil
}

// Discover returns the labels of the targets that the jobs of a configuration file find in a cluster, after they have found that many pods.
func (s Server) Discover(ctx context.Context, config, kubeconfig string, pods int) ([]map[string]string, error) {
	var found struct{ Targets []map[string]string }
	err := s.run(ctx, map[string]any{"config": config, "kubeconfig": kubeconfig, "pods": pods}, &found)
	return found.Targets, err
}

// run gives the program the task and reads its answer.
func (s Server) run(ctx context.Context, task, answer any) error {
	in, err := json.Marshal(task)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.Program)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("query Prometheus: %w\n%s", err, stderr.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("query Prometheus: %w", err)
	}
	return nil
}
