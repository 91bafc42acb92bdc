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

// ErrNotRoot says that root is needed.
var ErrNotRoot = errors.New("needs root: the fake host has device nodes, which only root can make")

// CheckRoot returns ErrNotRoot for other users than root.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	return nil
}

// Build builds a program of the tree to the path; args are those of go build.
func Build(ctx context.Context, path string, args ...string) error {
	return BuildIn(ctx, ".", path, args...)
}

// BuildIn is Build for a module of its own in a folder of the tree.
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

// BuildDriver builds the fake GPU library into the cache, so that later installations find it there.
func BuildDriver(ctx context.Context) error {
	cache, err := fakegpu.DefaultCache()
	if err != nil {
		return err
	}
	_, err = fakegpu.Build(ctx, cache)
	return err
}

// ClusterPrograms returns the folders of etcd and of Kubernetes' programs, which it builds when the
// cache has none yet; that takes minutes and shows progress.
func ClusterPrograms(ctx context.Context) (binaries.Folders, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		return nil, err
	}
	return binaries.Builder{Modules: filepath.Join(source, "e2e", "env", "lab", "modules"), Cache: cache, Progress: os.Stderr}.Build(ctx)
}
