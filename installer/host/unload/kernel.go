package unload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
	hostcommand "github.com/tessera-gpu/tessera/internal/host/command"
)

// Linux is the kernel of this process.
type Linux struct{ Roots host.Roots }

// Loaded returns the loaded modules.
func (l Linux) Loaded() ([]survey.Module, error) { return survey.Modules(l.Roots) }

// Remove removes a module (delete_module(2), nonblocking). An absent module is no error.
func (l Linux) Remove(_ context.Context, module string) error {
	err := unix.DeleteModule(module, unix.O_NONBLOCK)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}

// Simulated is the kernel of simulated hardware: `<program> rmmod <module>` removes a module. Exit status 16 (EBUSY) means that the module is in use.
type Simulated struct {
	Roots   host.Roots
	Program string
}

// Loaded returns the loaded modules.
func (s Simulated) Loaded() ([]survey.Module, error) { return survey.Modules(s.Roots) }

// Remove removes a module.
func (s Simulated) Remove(ctx context.Context, module string) error {
	command := exec.CommandContext(ctx, s.Program, "rmmod", module)
	command.WaitDelay = hostcommand.OutputDelay
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == int(unix.EBUSY) {
		return fmt.Errorf("%w: %s", ErrBusy, strings.TrimSpace(string(output)))
	}
	if err != nil {
		return fmt.Errorf("%s rmmod %s: %w: %s", s.Program, module, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// MountTable is the mount table of this process. Unmounts propagate to the host if the mount of the host's root is shared with it.
type MountTable struct{ File string }

// Below returns the mount points at and below a path (proc_pid_mountinfo(5)).
func (m MountTable) Below(path string) ([]string, error) {
	file, err := os.Open(m.File)
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	defer file.Close()
	var points []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); host.Below(point, path) {
			points = append(points, point)
		}
	}
	return slices.Clip(points), lines.Err()
}

// unescape decodes the octal escapes of the mount table: space, tab, line feed, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Unmount unmounts a path. An absent mount is no error: the unmount of its parent's peer may have removed it.
func (m MountTable) Unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}
