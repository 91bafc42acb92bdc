package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tessera-gpu/tessera/e2e/bench/arrivals"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

// sharer is a pod of the trace that shares a GPU, with times in seconds.
type sharer struct {
	// limit is what it can have of the GPU's memory, used what it has from the middle of its life on.
	limit, used          float64
	arrives, grows, ends float64
}

// pack replays the pods of the trace that share a GPU. Each can have the part of the GPU that it has in the trace (memoryLimit), and requests an assumed part of
// that; the rest is not reserved. What pods really use is between 30 and 100 percent of what they can have, from the middle of their lives on: where the pods of a
// GPU then need more than it has, the last one gets an out-of-memory error and is counted as evicted.
func (b *bench) pack(ctx context.Context) error {
	if b.openb == "" {
		b.Note("packing of the openb trace: not run; -openb names its folder")
		return nil
	}
	pods, err := readSharers(b.openb)
	if err != nil {
		return fmt.Errorf("read the openb trace: %w", err)
	}
	for _, assumed := range []float64{1, .9, .8, .7, .6, .5} {
		if err := ctx.Err(); err != nil {
			return err
		}
		gpus, evicted := replay(pods, assumed)
		name := fmt.Sprintf("openb, requests of %.0f %% of the limits: ", 100*assumed)
		b.Add(report.Figure(name+"GPUs at the peak", float64(gpus), ""), report.Figure(name+"evicted", 100*float64(evicted)/float64(len(pods)), "% of pods"))
	}
	b.Note("packing: %d pods with a part of a GPU, best fit by requests; use of 30 to 100 %% of the limit, equally distributed", len(pods))
	return nil
}

// readSharers reads the pods with a part of one GPU.
func readSharers(folder string) ([]sharer, error) {
	all, err := arrivals.ReadOpenb(folder)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 0))
	var pods []sharer
	for _, p := range all {
		if p.Milli < 1000 {
			limit, arrives, ends := float64(p.Milli)/1000, float64(p.Arrives), float64(p.Leaves)
			pods = append(pods, sharer{limit: limit, used: limit * (.3 + .7*random.Float64()), arrives: arrives, grows: (arrives + ends) / 2, ends: ends})
		}
	}
	return pods, nil
}

// event is a change of one pod: it ends, grows or arrives, in this order at equal times.
type event struct {
	at   float64
	kind int
	pod  int
}

// replay places the pods on as many GPUs as they need, and returns their largest number and how many pods were evicted.
func replay(pods []sharer, assumed float64) (peak, evicted int) {
	const ends, grows, arrives = 0, 1, 2
	var events []event
	for i, p := range pods {
		events = append(events, event{p.arrives, arrives, i}, event{p.grows, grows, i}, event{p.ends, ends, i})
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.pod, b.pod))
	})
	var requested, used []float64 // by GPU
	on := map[int]int{}           // the GPU of each running pod
	grown := map[int]bool{}
	remove := func(pod int) {
		g, runs := on[pod]
		if !runs {
			return
		}
		requested[g] -= assumed * pods[pod].limit
		if grown[pod] {
			used[g] -= pods[pod].used
		}
		delete(on, pod)
	}
	for _, e := range events {
		switch e.kind {
		case ends:
			remove(e.pod)
		case grows:
			g, runs := on[e.pod]
			if !runs {
				continue
			}
			if used[g]+pods[e.pod].used > 1+1e-9 {
				evicted++
				remove(e.pod)
				continue
			}
			grown[e.pod], used[g] = true, used[g]+pods[e.pod].used
		case arrives:
			g := bestFit(requested, assumed*pods[e.pod].limit)
			if g == len(requested) {
				requested, used = append(requested, 0), append(used, 0)
			}
			requested[g] += assumed * pods[e.pod].limit
			on[e.pod] = g
			busy := map[int]bool{}
			for _, g := range on {
				busy[g] = true
			}
			peak = max(peak, len(busy))
		}
	}
	return peak, evicted
}

// bestFit returns the GPU with the least room that is enough; a new one if there is none.
func bestFit(requested []float64, request float64) int {
	best, room := len(requested), math.Inf(1)
	for g, taken := range requested {
		if left := 1 - taken - request; left > -1e-9 && left < room && taken > 1e-9 {
			best, room = g, left
		}
	}
	if best < len(requested) {
		return best
	}
	for g, taken := range requested {
		if taken <= 1e-9 {
			return g
		}
	}
	return best
}
