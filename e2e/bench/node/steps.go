package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// stepLine is a line of the agent's histogram of steps.
var stepLine = regexp.MustCompile(`(?m)^tessera_prepare_step_duration_seconds_(sum|count)\{step="([^"]+)"\} (\S+)$`)

// noteSteps adds the mean duration of each step, from the agent's own histogram.
func (b *bench) noteSteps(ctx context.Context, p plugin) error {
	text, err := p.metrics(ctx)
	if err != nil {
		return err
	}
	if steps := means(text); len(steps) > 0 {
		b.Note("steps of all claims above with records in memory, on average in ms: %s", strings.Join(steps, ", "))
	}
	return nil
}

// means returns the mean of each step, "name milliseconds", in order of name.
func means(metrics string) []string {
	sums, counts := map[string]float64{}, map[string]float64{}
	for _, found := range stepLine.FindAllStringSubmatch(metrics, -1) {
		value, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			continue
		}
		if found[1] == "sum" {
			sums[found[2]] = value
		} else {
			counts[found[2]] = value
		}
	}
	var list []string
	for _, step := range slices.Sorted(maps.Keys(sums)) {
		if counts[step] > 0 {
			list = append(list, fmt.Sprintf("%s %.2f", step, 1000*sums[step]/counts[step]))
		}
	}
	return list
}

// metricsOf reads the agent's metrics.
func metricsOf(a *harness.Agent) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		response, err := a.Request(ctx, "/metrics")
		if err != nil {
			return "", err
		}
		defer response.Body.Close() //nolint:errcheck // it was read
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
}
