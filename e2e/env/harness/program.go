package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// ErrNotRoot is returned if the process is not run by root.
var ErrNotRoot = errors.New("needs root: the fake host has device nodes, which only root can make")

// CheckRoot returns ErrNotRoot for users other than root.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	return nil
}

// Build builds a program of the repository to the path. args are arguments of go build.
func Build(ctx context.Context, path string, args ...string) error {
	return BuildIn(ctx, ".", path, args...)
}

// BuildIn is Build for a nested module in a folder of the repository.
func BuildIn(ctx context.Context, module, path string, args ...string) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", path}, args...)...)
	cmd.Dir = filepath.Join(source, module)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", filepath.Base(path), err, out)
	}
	return nil
}

// BuildDriver builds the fake GPU library into the cache, for later installations.
func BuildDriver(ctx context.Context) error {
	cache, err := fakegpu.DefaultCache()
	if err != nil {
		return err
	}
	_, err = fakegpu.Build(ctx, cache)
	return err
}

// ClusterPrograms returns the folders of the programs of etcd and Kubernetes. It builds programs that are missing in
// the cache, which takes minutes and reports progress.
func ClusterPrograms(ctx context.Context) (binaries.Folders, error) {
	builder, err := binaries.NewBuilder("", os.Stderr)
	if err != nil {
		return nil, err
	}
	return builder.Build(ctx, binaries.Etcd, binaries.Kubernetes)
}
