// Command publish measures the ResourceSlices of a node with eight H100: their size, the time to
// publish them, and their cost in the API server. They are compared with the set of NVIDIA's driver for
// the same hardware, which is written down here attribute by attribute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// machine is the node of every row.
const machine = "h100x8"

func main() {
	b := &bench{}
	flag.IntVar(&b.nodes, "nodes", 200, "publish this many nodes to see what one costs the API server")
	flag.IntVar(&b.rounds, "rounds", 200, "encode this often")
	flag.IntVar(&b.publications, "publications", 9, "publish a node this often")
	flag.Parse()
	os.Exit(report.Main("publish", b.measure))
}

// bench is one run.
type bench struct {
	nodes, rounds, publications int
	*report.Report
	folder   scratch.Folder
	programs binaries.Folders
	planes   int
}

func (b *bench) measure(ctx context.Context, r *report.Report) (err error) {
	b.Report = r
	sets := []set{compact(), full(), nvidias()}
	if err := b.sizes(sets); err != nil {
		return err
	}
	if b.folder, err = scratch.New(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.folder.Close()) }()
	if b.programs, err = harness.ClusterPrograms(ctx); err != nil {
		return err
	}
	if err := b.times(ctx); err != nil {
		return err
	}
	return b.heaps(ctx, sets)
}

// node returns the machine under the name.
func node(name string) (gpu.Node, error) {
	m, err := catalog.FindMachine(machine)
	if err != nil {
		return gpu.Node{}, err
	}
	return m.Node(name)
}

// fresh starts a separate API server, which the caller stops.
func (b *bench) fresh(ctx context.Context) (*harness.Plane, error) {
	b.planes++
	dir, err := b.folder.Sub(fmt.Sprint("plane-", b.planes))
	if err != nil {
		return nil, err
	}
	b.Doing("starting an API server")
	return harness.StartPlane(ctx, dir, b.programs)
}
