package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// heldByDaemon is the value of gpuState.Persistence of a GPU that nvidia-persistenced has open; 1 is the driver's own persistence mode.
const heldByDaemon = 2

// StartPersistenced starts the daemon nvidia-persistenced of the driver root with persistence mode, as NVIDIA's driver containers do (nvidia-driver,
// "nvidia-persistenced --persistence-mode"): it has every GPU open, and its socket is below the driver root's /run. A program that does not find the socket
// at /var/run/nvidia-persistenced/socket reads the mode as disabled, and cannot make the daemon close a GPU.
func StartPersistenced(dir string) error {
	socket := filepath.Join(DriverRoot(dir), "run/nvidia-persistenced/socket")
	err := errors.Join(os.MkdirAll(filepath.Dir(socket), 0o755), unix.Mknod(socket, unix.S_IFSOCK|0o777, 0))
	if err != nil {
		return fmt.Errorf("start nvidia-persistenced: %w", err)
	}
	return changeLive(dir, func(l *live) error {
		for i := range l.GPUs {
			l.GPUs[i].Persistence = heldByDaemon
		}
		return nil
	})
}
