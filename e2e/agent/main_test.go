package agent

import (
	"context"
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
	// agent is the product, crashing the same program with the seam for crashes, hook the CDI hook.
	agent, crashing, hook string
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
	w.agent, w.crashing, w.hook = filepath.Join(dir, "tessera-node"), filepath.Join(dir, "tessera-node-crashing"), filepath.Join(dir, "tessera-hook")
	for _, args := range [][]string{
		{"-tags=grpcnotrace", "-o", w.agent, "./cmd/tessera-node"},
		{"-tags=grpcnotrace,crashtest", "-o", w.crashing, "./cmd/tessera-node"},
		{"-o", w.hook, "./cmd/tessera-hook"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
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
