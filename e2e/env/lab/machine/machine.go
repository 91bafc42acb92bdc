package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/cgroup"
	"github.com/tessera-gpu/tessera/e2e/env/lab/netns"
)

// shutdownGrace is the time that the services of a machine have to stop before the machine is killed.
const shutdownGrace = 30 * time.Second

// ErrDown is returned if the machine does not run.
var ErrDown = errors.New("the machine is down")

// Machine is one computer of a lab, identified by its folder. The value has no state: any process that has the folder
// may operate the machine, but only one at a time may boot or stop it.
type Machine struct {
	folder string
	cgroup string
}

// At returns the machine of a folder, which need not exist yet. cgroup is the name of its control group tree, unique on
// the host.
func At(folder, cgroup string) Machine { return Machine{folder: folder, cgroup: cgroup} }

// Make creates the folder and the disk: a tmpfs, since containerd's overlays need a file system that is not an overlay.
func (m Machine) Make() error {
	for _, dir := range []string{m.Disk(), m.Logs(), filepath.Join(m.folder, RootFolder)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the machine's folder: %w", err)
		}
	}
	if err := unix.Mount("tmpfs", m.Disk(), "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the machine's disk on %s: %w", m.Disk(), err)
	}
	return nil
}

// Disk returns the host's path of the folder that persists across reboots.
func (m Machine) Disk() string { return filepath.Join(m.folder, DiskFolder) }

// Logs returns the folder with one log per service and guest.log.
func (m Machine) Logs() string { return filepath.Join(m.folder, LogFolder) }

// Network returns the machine's network namespace, which the caller creates before each boot.
func (m Machine) Network() netns.Namespace {
	return netns.Namespace(filepath.Join(m.folder, "netns"))
}

// Running reports whether the machine's first process is alive.
func (m Machine) Running() (bool, error) {
	identity, ok, err := m.identity()
	return ok && identity.Alive(), err
}

// Kill simulates a power loss: every process of the machine ends immediately. A machine that is down is not an error.
func (m Machine) Kill(ctx context.Context) error { return m.end(ctx, unix.SIGKILL) }

// Shutdown stops the services in order, and kills the machine after shutdownGrace.
func (m Machine) Shutdown(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	if err := m.end(patient, unix.SIGTERM); err == nil {
		return nil
	}
	return m.Kill(ctx)
}

// end signals the first process and waits for it: the kernel ends all other processes of its PID namespace first. Then
// the control groups are removed.
func (m Machine) end(ctx context.Context, sig unix.Signal) error {
	identity, ok, err := m.identity()
	if err != nil {
		return err
	}
	if ok {
		if err := identity.end(ctx, sig); err != nil {
			return err
		}
	}
	tree, err := cgroup.Of(m.cgroup)
	if err != nil {
		return err
	}
	if err := tree.Remove(ctx); err != nil {
		return err
	}
	if err := os.Remove(m.identityFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the machine's process: %w", err)
	}
	return nil
}

// Output runs a prepared program and returns its standard output. An error includes the standard error.
func Output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), err
}

// Command prepares a program to run inside the machine, in all its namespaces, as root. Paths are those inside the
// machine.
func (m Machine) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	identity, ok, err := m.identity()
	if err != nil {
		return nil, err
	}
	if !ok || !identity.Alive() {
		return nil, ErrDown
	}
	enter := []string{"--target", strconv.Itoa(identity.PID), "--mount", "--uts", "--ipc", "--net", "--pid", "--"}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...), nil
}
