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
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// Linux is the kernel that this process runs on.
type Linux struct{ Roots host.Roots }

// Loaded returns the modules.
func (l Linux) Loaded() ([]survey.Module, error) { return survey.Modules(l.Roots) }

// Remove takes a module out (delete_module(2), without waiting). One that is gone already is no error.
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

// Simulated is the kernel of simulated hardware: a program removes modules, run as `<program> rmmod <module>`. Its exit status 16 (EBUSY) says that the module is in use.
type Simulated struct {
	Roots   host.Roots
	Program string
}

// Loaded returns the modules.
func (s Simulated) Loaded() ([]survey.Module, error) { return survey.Modules(s.Roots) }

// Remove takes a module out.
func (s Simulated) Remove(ctx context.Context, module string) error {
	command := exec.CommandContext(ctx, s.Program, "rmmod", module)
	command.WaitDelay = time.Second
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

// MountTable is the mount table of this process, in which unmounts reach the host when the mount of the host's root is shared with it.
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

// unescape undoes the octal escapes of the mount table: blank, tab, line feed, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Unmount takes a mount off. One that is gone already, as its parent's peer took it along, is no error.
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
