package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/placement/fleet"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// openbPods is the trace's file of pods, openbServed the share of them that the bound serves.
const (
	openbPods   = "openb_pod_list_default.csv"
	openbServed = .98
)

// trace replays the openb trace with its own times: pods that request one GPU or a part of it, each as the
// smallest profile with the requested compute, on the smallest fleet on which the bound serves enough of
// them for the policies to differ.
func (b *bench) trace() error {
	if b.openb == "" {
		b.Note("openb: not run")
		return nil
	}
	demands, err := b.openbDemands(filepath.Join(b.openb, openbPods))
	if err != nil {
		return fmt.Errorf("read the openb trace: %w", err)
	}
	stream := arrivals.New(demands, len(demands)/4)
	shares := make([]float64, len(b.states.Profiles))
	for _, d := range demands {
		shares[d.Kind] += 1 / float64(len(demands))
	}
	gpus := 1
	for fleet.ReplayRepack(b.states, gpus, stream).Acceptance() < openbServed {
		gpus++
	}
	b.Doing("openb, %d pods, %d GPUs", len(demands), gpus)
	r := result{cell: cell{mix: mix{name: "openb"}, gpus: gpus}, tallies: b.replay(b.policies(shares), gpus, stream)}
	row := report.Figure(fmt.Sprintf("accepted, openb, %d GPUs", gpus), r.tallies[ours].Acceptance(), "of slices")
	row.Better = report.Higher
	b.Add(r.withPeers(row, fleet.Tally.Acceptance))
	return nil
}

// openbDemands reads the pods.
func (b *bench) openbDemands(path string) ([]arrivals.Demand, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	var columns [4]int
	for i, name := range []string{"num_gpu", "gpu_milli", "creation_time", "deletion_time"} {
		if columns[i] = slices.Index(records[0], name); columns[i] < 0 {
			return nil, fmt.Errorf("%s has no column %s", path, name)
		}
	}
	var demands []arrivals.Demand
	for line, record := range records[1:] {
		var values [4]int
		for i, column := range columns {
			if values[i], err = strconv.Atoi(record[column]); err != nil {
				return nil, fmt.Errorf("line %d: %w", line+2, err)
			}
		}
		if values[0] == 1 && values[3] > values[2] {
			demands = append(demands, arrivals.Demand{Kind: b.smallest(values[1]), Arrives: float64(values[2]), Leaves: float64(values[3])})
		}
	}
	slices.SortStableFunc(demands, func(a, b arrivals.Demand) int { return cmp.Compare(a.Arrives, b.Arrives) })
	return demands, nil
}

// smallest returns the smallest profile that has so many thousandths of the GPU's compute.
func (b *bench) smallest(milli int) int {
	last := len(b.states.Profiles) - 1
	for i, p := range b.states.Profiles {
		if 1000*p.ComputeSlices >= milli*b.states.Profiles[last].ComputeSlices {
			return i
		}
	}
	return last
}
