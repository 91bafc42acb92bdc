// Command mutate checks that the tests of packages notice changes of their code. It compiles each package with all its mutants, of which one runs at a time,
// runs its tests with a seeded sample of them, and prints those that no test notices. It fails if these are more than -survivors of a package.
//
// A mutant negates a condition, replaces a comparison or a logical operator, leaves out a call or an assignment, or returns no error. Programs that tests build
// for themselves have no mutants. Changed code that runs as root may change anything, so the tests run in mount and PID namespaces with file systems that are
// read-only except for temporary folders.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	o := options{}
	flag.IntVar(&o.number, "n", 200, "mutants per package")
	flag.Uint64Var(&o.seed, "seed", 1, "which mutants")
	percentage := flag.Int("survivors", 10, "percentage of the mutants of a package that its tests may miss")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, flag.Args(), *percentage); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// options select the mutants of a package.
type options struct {
	number int
	seed   uint64
	// survived is called for each mutant that no test notices, by one goroutine at a time.
	survived func(name string, at point)
}

// run tests the packages, one after the other, and returns an error if more than a percentage of the mutants of one of them survived.
func (o options) run(ctx context.Context, packages []string, percentage int) error {
	if len(packages) == 0 {
		return errors.New("no packages given")
	}
	survivors := 0
	o.survived = func(name string, at point) {
		survivors++
		fmt.Printf("%s/%s:%d: %s: %s\n", name, at.File, at.Line, at.Kind, at.Text)
	}
	var missed error
	for _, name := range packages {
		survivors = 0
		ran, err := o.test(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %d of %d mutants survived\n", name, survivors, ran)
		if survivors*100 > percentage*ran {
			missed = errors.Join(missed, fmt.Errorf("%s: more than %d %% of the mutants survived", name, percentage))
		}
	}
	return missed
}

// test runs the tests of a package with a sample of its mutants and returns their number.
func (o options) test(ctx context.Context, name string) (ran int, err error) {
	p, err := find(ctx, name)
	if err != nil {
		return 0, err
	}
	points, err := scan(p.Dir, p.GoFiles)
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	binary, err := p.build(ctx, folder, points)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if output, err := p.start(ctx, binary, none, 10*time.Minute); err != nil {
		return 0, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, output)
	}
	// A mutant that waits forever is noticed. Several mutants run at a time.
	limit := 10*time.Second + 5*time.Since(began)
	sample := rand.New(rand.NewPCG(o.seed, 0)).Perm(len(points)) //nolint:gosec // reproducible
	sample = slices.Sorted(slices.Values(sample[:min(o.number, len(sample))]))
	var group errgroup.Group
	var mu sync.Mutex
	group.SetLimit(runtime.NumCPU())
	for _, i := range sample {
		group.Go(func() error {
			if _, err := p.start(ctx, binary, i, limit); err != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			o.survived(name, points[i])
			return nil
		})
	}
	return len(sample), group.Wait()
}
