package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/lab/binaries"
)

// world is what all tests share.
type world struct {
	*plane
	// product is the agent as it is shipped, agent the same with the race detector when the tests have
	// it, crashing the same with the seam for crashes. hook is the CDI hook.
	product, agent, crashing, hook string
}

// shared is set before the first test.
var shared world

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if os.Getuid() != 0 {
		fmt.Println("skipped: the fake host has device nodes, which only root can make")
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if err := shared.build(ctx, dir); err != nil {
		return 0, err
	}
	programs, err := clusterPrograms(ctx)
	if err != nil {
		return 0, err
	}
	if shared.plane, err = startPlane(dir, programs); err != nil {
		return 0, err
	}
	defer shared.stop()
	return m.Run(), nil
}

// build builds the programs from the tree that is tested.
func (w *world) build(ctx context.Context, dir string) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	build := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", path}, args...)...)
		cmd.Dir = source
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = errors.Join(err, fmt.Errorf("build %s: %w\n%s", name, failed, out))
		}
		return path
	}
	w.product = build("tessera-node", "-tags=grpcnotrace", "./cmd/tessera-node")
	w.crashing = build("tessera-node-crashing", "-tags=grpcnotrace,crashtest", "./cmd/tessera-node")
	w.hook = build("tessera-hook", "./cmd/tessera-hook")
	w.agent = w.product
	if raced {
		w.agent = build("tessera-node-raced", "-race", "-tags=grpcnotrace", "./cmd/tessera-node")
	}
	if err != nil {
		return err
	}
	cache, err := fakegpu.DefaultCache()
	if err != nil {
		return err
	}
	_, err = fakegpu.Build(ctx, cache)
	return err
}

// clusterPrograms returns the folders of etcd and of Kubernetes' programs.
func clusterPrograms(ctx context.Context) (binaries.Folders, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		return nil, err
	}
	return binaries.Builder{Modules: filepath.Join(source, "e2e", "lab", "modules"), Cache: cache, Progress: os.Stderr}.Build(ctx)
}
