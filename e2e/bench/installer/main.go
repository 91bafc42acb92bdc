// Command installer measures what the installer costs: its requests to the API server at rest, while a fleet is installed, upgraded, and
// while one node is broken; its memory and its reconciles. Nodes and pods are simulated by kwok, agents and discovery by the bench; the
// API server, its controllers, the scheduler and the installer are real.
//
// With -settled only a few nodes are installed: the others are written as copies of them, and the installer is restarted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
)

func main() {
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 1000, "size of the fleet")
	flag.DurationVar(&b.quiet, "quiet", 2*time.Minute, "how long nothing happens while requests are counted")
	flag.DurationVar(&b.broken, "broken", time.Minute, "how long one node is broken while requests are counted")
	flag.DurationVar(&b.limit, "patience", 40*time.Minute, "how long installing or upgrading the fleet may take")
	flag.BoolVar(&b.upgrades, "upgrade", true, "also upgrade the fleet, and break a node; false: end after the time at rest")
	flag.BoolVar(&b.settled, "settled", false, "install a few nodes, write the others as copies of them, and restart the installer on them: no upgrade")
	flag.Parse()
	name := "installer"
	if b.settled {
		name = "installer-settled"
	}
	os.Exit(report.Main(name, b.measure))
}

// bench is one run.
type bench struct {
	nodes                int
	quiet, broken, limit time.Duration
	upgrades, settled    bool
	*report.Report
}

func (b *bench) measure(ctx context.Context, r *report.Report) (err error) {
	b.Report = r
	folder, err := scratch.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	s, err := raise(ctx, b, filepath.Join(folder.Disk, "lab"), folder.Disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end(context.WithoutCancel(ctx))) }()
	for _, part := range b.parts() {
		if err := part(ctx, s); err != nil {
			return fmt.Errorf("%w; the last line of the installer's log: %s", err, s.lastLogLine())
		}
	}
	return b.inside(ctx, s)
}

// parts are the measurements, in order.
func (b *bench) parts() []func(context.Context, *stage) error {
	parts := []func(context.Context, *stage) error{b.install, b.rest}
	if b.settled {
		parts = []func(context.Context, *stage) error{b.settle, b.restart, b.rest, b.checkReady}
	}
	if b.upgrades && !b.settled {
		parts = append(parts, b.upgrade)
	}
	if b.upgrades {
		parts = append(parts, b.brokenNode)
	}
	return parts
}
