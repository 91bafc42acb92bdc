package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildImage creates, in the folder root, the root file system of a container: /program from this C source, and the libraries of the host
// that it and the other programs are linked to. The other programs are not copied.
func BuildImage(ctx context.Context, root, source string, others ...string) error {
	for _, folder := range []string{"proc", "dev", "sys", "tmp", "etc", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}
	program := filepath.Join(root, "program")
	compile := exec.CommandContext(ctx, "gcc", "-xc", "-", "-o", program, "-ldl")
	compile.Stdin = strings.NewReader(source)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, out)
	}
	for _, program := range append(others, program) {
		if err := copyLibraries(ctx, root, program); err != nil {
			return err
		}
	}
	return nil
}

// copyLibraries copies the libraries that the program is linked to from the host to the same paths.
func copyLibraries(ctx context.Context, root, program string) error {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", program, err)
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
