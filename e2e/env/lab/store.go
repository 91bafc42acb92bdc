package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// storeConfig is the configuration of a containerd that only stores images.
const storeConfig = `version = 3
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"]
`

// fillStore imports the images of the nodes into containerd's folder for a virtual machine, with a containerd that runs on the host meanwhile: hashing 600 MB
// takes ten minutes in the machine. The layers of the lab's images remove no folder of a lower layer, so that no extended attributes are lost when the
// folder is copied.
func (l *Lab) fillStore(ctx context.Context, folders binaries.Folders, images []string, folder string) (err error) {
	scratch, err := os.MkdirTemp("", "store-") // the path of a socket is limited
	if err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	config, socket := filepath.Join(scratch, "config.toml"), filepath.Join(scratch, "socket")
	if err := errors.Join(os.WriteFile(config, []byte(storeConfig), 0o600), os.MkdirAll(folder, 0o711)); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	program := func(name string) string { return filepath.Join(folders[binaries.Containerd], name) }
	log, err := os.Create(filepath.Join(scratch, "log"))
	if err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	defer log.Close() //nolint:errcheck // containerd has its own copy
	daemon := exec.CommandContext(ctx, program("containerd"), "--config", config, "--root", folder, "--state", filepath.Join(scratch, "state"), "--address", socket)
	daemon.Stdout, daemon.Stderr = log, log
	daemon.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL} // its mounts are not the host's
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	defer func() { err = errors.Join(err, daemon.Process.Signal(syscall.SIGTERM), daemon.Wait()) }() // exits with 0
	if err := awaitSocket(ctx, socket); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("import images: %w: %s", err, text)
	}
	for _, image := range images {
		ctr := exec.CommandContext(ctx, program("ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", filepath.Join(l.images(), image))
		if output, err := ctr.CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s: %w: %s", image, err, output)
		}
	}
	return nil
}

// awaitSocket returns when the socket exists.
func awaitSocket(ctx context.Context, path string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for containerd: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}
