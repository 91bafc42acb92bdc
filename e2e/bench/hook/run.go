package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
)

// runs are the containers that have ended, by variant; those of one index belong to one turn.
type runs map[string][]runc.Result

func (r runs) samples(name string, of func(runc.Result) time.Duration) report.Samples {
	var samples report.Samples
	for _, run := range r[name] {
		samples = append(samples, of(run))
	}
	return samples
}

// differences returns the difference of two variants, turn by turn.
func (r runs) differences(more, less string, of func(runc.Result) time.Duration) report.Samples {
	var samples report.Samples
	for i, run := range r[more] {
		samples = append(samples, of(run)-of(r[less][i]))
	}
	return samples
}

// stage runs containers, one at a time.
type stage struct{ runc.Stage }

// driverName is the name by which CUDA programs load the driver, and notFound the status of the program that does not find it.
const (
	driverName = "libcuda.so.1"
	notFound   = 7
)

// check starts each variant once and verifies that the program finds the driver exactly where it should:
// a variant that does not work is not measured.
func (s stage) check(ctx context.Context, variants []variant) error {
	for _, v := range variants {
		want := notFound
		if v.driver() {
			want = 0
		}
		if _, err := s.run(ctx, v, want, driverName); err != nil {
			return err
		}
	}
	return nil
}

// turns starts every variant in every round. Each is the first of a round equally often.
func (s stage) turns(ctx context.Context, variants []variant, rounds int) (runs, error) {
	all := runs{}
	for round := range rounds {
		for i := range variants {
			v := variants[(round+i)%len(variants)]
			result, err := s.run(ctx, v, 0)
			if err != nil {
				return nil, err
			}
			all[v.name] = append(all[v.name], result)
		}
	}
	return all, nil
}

// run runs the program with these arguments, which has to end with the status.
func (s stage) run(ctx context.Context, v variant, status int, args ...string) (runc.Result, error) {
	result, err := s.Run(ctx, v.spec, append([]string{"/program"}, args...)...)
	if err == nil && result.Status != status {
		err = fmt.Errorf("status %d instead of %d\n%s", result.Status, status, result.Output)
	}
	if err != nil {
		return runc.Result{}, fmt.Errorf("%s: %w", v.name, err)
	}
	return result, nil
}
