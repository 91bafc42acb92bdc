package harness

import (
	"context"
	"fmt"
	"os"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Ground is the common environment of a package's tests: an API server, a folder, and the programs of a cluster.
type Ground struct {
	*Plane
	Dir      string
	Programs binaries.Folders
}

// Main implements TestMain for a package whose tests share a Ground: it creates the ground, calls prepare for further
// shared state, runs the tests, removes everything and exits. The context of prepare ends after the tests.
func Main(m interface{ Run() int }, prepare func(context.Context, Ground) error) {
	code, err := run(m, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests could not begin:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m interface{ Run() int }, prepare func(context.Context, Ground) error) (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := Ground{}
	if g.Dir, err = os.MkdirTemp("", "tessera-test"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(g.Dir) //nolint:errcheck // what is left is of no use to anybody
	if g.Programs, err = ClusterPrograms(ctx); err != nil {
		return 0, err
	}
	if g.Plane, err = StartPlane(ctx, g.Dir, g.Programs); err != nil {
		return 0, err
	}
	defer g.Stop()
	if err := prepare(ctx, g); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
