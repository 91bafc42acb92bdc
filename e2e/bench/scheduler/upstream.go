package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// workload is the result of one case of Kubernetes' benchmark with one plugin, as e2e/tests/upstream writes it.
type workload struct {
	Case             string  `json:"case"`
	Plugin           string  `json:"plugin"`
	PodsPerSecond    float64 `json:"podsPerSecond"`
	AttemptMeanMS    float64 `json:"attemptMeanMS"`
	AttemptP99MS     float64 `json:"attemptP99MS"`
	AlgorithmMeanMS  float64 `json:"algorithmMeanMS"`
	CPUSecondsPerPod float64 `json:"cpuSecondsPerPod"`
	HeapMiB          float64 `json:"heapMiB"`
}

// upstream adds the results of Kubernetes' own cases, if they were run.
func (b *bench) upstream(context.Context) error {
	if b.cases == "" {
		return nil
	}
	file, err := os.Open(b.cases)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	var inTree *workload
	for lines := json.NewDecoder(file); ; {
		w := &workload{}
		switch err := lines.Decode(w); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", b.cases, err)
		case w.Plugin != plugin.Name:
			inTree = w
		case inTree != nil && inTree.Case == w.Case:
			b.compare(*w, *inTree)
		}
	}
}

func (b *bench) compare(ours, inTree workload) {
	where := "upstream's " + ours.Case + ": "
	compared := func(name string, of func(workload) float64, unit string) report.Row {
		return report.Figure(where+name, of(ours), unit).Peer("in-tree", of(inTree))
	}
	b.Add(
		more(compared("pods bound in a second", func(w workload) float64 { return w.PodsPerSecond }, "1/s")),
		compared("scheduling attempt, mean", func(w workload) float64 { return w.AttemptMeanMS }, "ms"),
		compared("scheduling attempt, p99", func(w workload) float64 { return w.AttemptP99MS }, "ms"),
		compared("scheduling algorithm, mean", func(w workload) float64 { return w.AlgorithmMeanMS }, "ms"),
		compared("processor time of the scheduler for a pod", func(w workload) float64 { return 1000 * w.CPUSecondsPerPod }, "ms"),
		compared("heap of scheduler and API server", func(w workload) float64 { return w.HeapMiB }, "MiB"),
		report.Figure(where+"scheduling algorithm, mean, in proportion to in-tree", ours.AlgorithmMeanMS/inTree.AlgorithmMeanMS, "times").AtMost(mostOfInTree),
		report.Figure(where+"processor time for a pod, in proportion to in-tree", ours.CPUSecondsPerPod/inTree.CPUSecondsPerPod, "times").AtMost(mostOfInTree),
	)
}
