package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// Files and variables of the contract.
const (
	pidFile     = "/run/nvidia/nvidia-driver.pid"
	stateFile   = "/run/nvidia/nvidia-driver.state"
	daemonsFile = "/run/nvidia/validations/.driver-daemons-status"
	readyFile   = "/run/nvidia/validations/.driver-ctr-ready"
	mofedFile   = "/run/mellanox/drivers/.driver-ready"

	digestEnv = "DRIVER_CONFIG_DIGEST"
	rdmaEnv   = "GPU_DIRECT_RDMA_ENABLED"
	mofedEnv  = "USE_HOST_MOFED"
)

// perform performs a step and prints it, in the words of the table of the contract.
func perform(step string, do func() error) error {
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	fmt.Println("+ " + step)
	return nil
}

// lockPID locks the PID file and writes it. Another container that has it locked is an error.
func lockPID() (*os.File, error) {
	file, err := os.OpenFile(pidFile, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("an instance of the NVIDIA driver is already running: %w", err), file.Close())
	}
	return file, perform("write "+pidFile, func() error { return os.WriteFile(pidFile, fmt.Appendln(nil, os.Getpid()), 0o644) })
}

func setDaemons(status string) error {
	return perform("write "+daemonsFile+" "+status, func() error {
		if err := os.MkdirAll(filepath.Dir(daemonsFile), 0o755); err != nil {
			return err
		}
		return os.WriteFile(daemonsFile, []byte(status+"\n"), 0o644)
	})
}

// keptDriver reports whether the loaded driver is the one of this container: a former container stored the same digest.
func keptDriver() (bool, error) {
	digest := os.Getenv(digestEnv)
	state, err := fakegpu.Read(folder)
	if err != nil || !state.DriverLoaded || digest == "" {
		return false, err
	}
	stored, err := os.ReadFile(stateFile)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return strings.TrimSpace(string(stored)) == digest, err
}

// exists reports whether a file exists.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
