package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program runs in the container: with an argument it searches for a library by that name, as a CUDA
// program does for its driver.
const program = `
#include <dlfcn.h>
int main(int argc, char **argv) { return argc > 1 && !dlopen(argv[1], RTLD_NOW); }`

// image creates the root file system of the container: the program, the host's C library, and the
// given number of other libraries, all of which are listed in the linker's cache.
func (b *bench) image(ctx context.Context) (string, error) {
	root, err := b.folder.Sub("image")
	if err != nil {
		return "", err
	}
	source := filepath.Join(b.folder.Disk, "program.c")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		return "", err
	}
	if err := output(exec.CommandContext(ctx, "gcc", "-o", filepath.Join(root, "program"), source)); err != nil {
		return "", err
	}
	for _, folder := range []string{"proc", "dev", "sys", "tmp", "etc", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return "", err
		}
	}
	if err := libc(ctx, root); err != nil {
		return "", err
	}
	return root, b.fill(ctx, root)
}

// libc copies the libraries that the program is linked to from the host to the same paths.
func libc(ctx context.Context, root string) error {
	out, err := exec.CommandContext(ctx, "ldd", filepath.Join(root, "program")).Output()
	if err != nil {
		return fmt.Errorf("ldd: %w", err)
	}
	for field := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(field, "/") {
			continue
		}
		content, err := os.ReadFile(field)
		if err != nil {
			return err
		}
		path := filepath.Join(root, field)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o755)); err != nil {
			return err
		}
	}
	return nil
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
