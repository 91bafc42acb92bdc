package toolkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/cri"
	hostcommand "github.com/tessera-gpu/tessera/internal/host/command"
)

// Service is a runtime that the host's service manager manages.
type Service struct {
	Roots host.Roots
	// Socket is the host path of the runtime's socket. If empty, the first existing default path is used.
	Socket string
	// Command restarts the runtime, such as systemctl restart containerd. It runs in the host's root and exits when the runtime has started.
	Command []string
}

// Status reads the runtime's status.
func (s Service) Status(ctx context.Context) (cri.Status, error) {
	socket, err := cri.Find(s.Roots, s.Socket)
	if err != nil {
		return cri.Status{}, err
	}
	return cri.ReadStatus(ctx, socket)
}

// Restart restarts the runtime with the service manager. SIGHUP is not sufficient: containerd reads its configuration only at its start.
func (s Service) Restart(ctx context.Context) error {
	program, err := s.program()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, program, s.Command[1:]...)
	command.WaitDelay = hostcommand.OutputDelay
	command.Dir = "/"
	// systemctl connects to the service manager with a socket in the host's root, and ignores requests if it detects a chroot.
	command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_IGNORE_CHROOT=1"}
	if s.Roots.Host != "/" {
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: s.Roots.Host}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(s.Command, " "), err, strings.Join(strings.Fields(string(output)), " "))
	}
	return nil
}

// program returns the path of the program in the host's root.
func (s Service) program() (string, error) {
	if len(s.Command) == 0 {
		return "", fmt.Errorf("restart the runtime: no command")
	}
	if filepath.IsAbs(s.Command[0]) {
		return s.Command[0], nil
	}
	for _, folder := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"} {
		path := filepath.Join(folder, s.Command[0])
		seen, err := s.Roots.See(path)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(seen); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("restart the runtime: no program %s on the host", s.Command[0])
}
