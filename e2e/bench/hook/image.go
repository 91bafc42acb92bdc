package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/runc"
)

// program runs in the container: with an argument it searches for a library by that name, as a CUDA
// program does for its driver.
const program = `
#include <dlfcn.h>
int main(int argc, char **argv) { return argc > 1 && !dlopen(argv[1], RTLD_NOW) ? 7 : 0; }`

// image creates the root file system of the container: the program, the host's C library, and the
// given number of other libraries, all of which are listed in the linker's cache.
func (b *bench) image(ctx context.Context) (string, error) {
	root, err := b.folder.Sub("image")
	if err != nil {
		return "", err
	}
	if err := runc.BuildImage(ctx, root, program); err != nil {
		return "", err
	}
	return root, b.fill(ctx, root)
}

// fill adds libraries to the image, each with the link by which programs load it.
func (b *bench) fill(ctx context.Context, root string) error {
	built := filepath.Join(b.folder.Disk, "filler.so")
	if err := output(exec.CommandContext(ctx, "gcc", "-shared", "-nostdlib", "-xc", "/dev/null", "-o", built)); err != nil {
		return err
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	for i := range b.libraries {
		name := fmt.Sprintf("libfiller%d.so.1", i)
		path := filepath.Join(root, "usr/lib", name)
		if err := errors.Join(os.WriteFile(path+".0", content, 0o644), os.Symlink(name+".0", path)); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command; an error contains its output.
func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}
