// Package modprobe loads kernel modules with the program modprobe of another root.
package modprobe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"

	hostcommand "github.com/tessera-gpu/tessera/internal/host/command"
)

// ErrNoProgram means that no root has the program modprobe.
var ErrNoProgram = errors.New("no modprobe in /sbin and /usr/sbin")

// Load loads a module with its dependencies. The roots are paths of this process; each is a file tree that may have modprobe and the module's
// file. They are tried in order until one succeeds. A loaded module is not an error. It requires root.
func Load(ctx context.Context, module string, roots ...string) error {
	var errs []error
	for _, root := range roots {
		err := load(ctx, root, module)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("modprobe %s in %s: %w", module, root, err))
	}
	return errors.Join(errs...)
}

func load(ctx context.Context, root, module string) error {
	program, err := find(root)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program, module)
	command.WaitDelay = hostcommand.OutputDelay
	command.Dir = "/"
	if root != "/" {
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(string(output)), " "))
	}
	return nil
}

// find returns the path of the program in the root. Debian's is a link to /bin/kmod of the same root.
func find(root string) (string, error) {
	for _, program := range []string{"/sbin/modprobe", "/usr/sbin/modprobe"} {
		file, err := securejoin.SecureJoin(root, program)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(file); err == nil {
			return program, nil
		}
	}
	return "", ErrNoProgram
}
