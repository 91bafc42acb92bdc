// Command driver implements the containers of a driver by NVIDIA's contract, for fake machines. As nvidia-driver, `init` loads the modules of the version
// in DRIVER_VERSION, shows its root below /run/nvidia/driver, and unloads at SIGTERM; `reload_nvidia_peermem` loads that module, and
// `probe_nvidia_peermem` checks it. As nvidia-gds-driver and nvidia-gdrcopy-driver, `install` loads nvidia_fs and gdrdrv. As nvidia-persistenced, it
// connects the fake GPUs to modules that another entry point has loaded into a real kernel.
//
// What it does to the host, and in which order, is what NVIDIA's entry points do: e2e/tests/contract compares it with the table that they wrote.
//
// A test makes a version fail or hang by the file faults/<version> in the machine's folder, which holds one of these two words.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// folder is the machine's folder, at the same path on the node and in the container.
const folder = "/run/fakegpu"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, args []string) error {
	if err := attach(folder); err != nil {
		return fmt.Errorf("reach the hardware: %w", err)
	}
	switch line := name + " " + strings.Join(args, " "); line {
	case "nvidia-driver init":
		return install(ctx, os.Getenv("DRIVER_VERSION"))
	case "nvidia-driver reload_nvidia_peermem":
		return companion(ctx, fakegpu.Peermem, networkReady)
	case "nvidia-driver probe_nvidia_peermem":
		return probePeermem()
	case "nvidia-persistenced --persistence-mode":
		return connect(os.Getenv("DRIVER_VERSION"))
	case "nvidia-gds-driver install":
		return companion(ctx, fakegpu.GDS, driverLoaded)
	case "nvidia-gdrcopy-driver install":
		return companion(ctx, fakegpu.GDRCopy, driverLoaded)
	default:
		return fmt.Errorf("%s: unknown: must be nvidia-driver init, reload_nvidia_peermem or probe_nvidia_peermem, "+
			"nvidia-gds-driver install, nvidia-gdrcopy-driver install", line)
	}
}

// install installs the driver on the machine and keeps it there until ctx ends. A driver with the digest of this container is kept, with its modules.
func install(ctx context.Context, version string) error {
	fmt.Println("========== NVIDIA Software Installer ==========")
	lock, err := lockPID()
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // the end of the process ends the lock as well
	if err := fault(ctx, version); err != nil {
		return err
	}
	if err := setDaemons("NotReady"); err != nil {
		return err
	}
	kept, err := keptDriver()
	if err != nil {
		return err
	}
	if err := replaceModules(version, kept); err != nil {
		return err
	}
	if err := setDaemons("Ready"); err != nil {
		return err
	}
	if err := show(version); err != nil {
		return fmt.Errorf("show the root of driver %s: %w", version, err)
	}
	if err := perform("write "+stateFile, func() error { return os.WriteFile(stateFile, []byte(os.Getenv(digestEnv)+"\n"), 0o644) }); err != nil {
		return err
	}
	fmt.Println("Done, now waiting for signal")
	<-ctx.Done()
	return shutdown()
}

// replaceModules unmounts the root of a former driver and, unless its modules are kept, replaces them by those of the version.
func replaceModules(version string, kept bool) error {
	if !kept {
		if err := unload(); err != nil {
			return fmt.Errorf("could not unload the driver: %w", err)
		}
	}
	if err := hide(); err != nil {
		return fmt.Errorf("unmount the root of a former driver: %w", err)
	}
	if kept {
		return nil
	}
	return load(version)
}

// shutdown unloads the driver after a signal. While it is in use, the container waits for another signal, as NVIDIA's do: kubelet kills it in the end.
func shutdown() error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGTERM, syscall.SIGINT)
	for {
		fmt.Println("Caught signal")
		err := unload()
		if err == nil {
			break
		}
		fmt.Fprintln(os.Stderr, "Could not unload NVIDIA driver kernel modules, driver is in use:", err)
		<-again
	}
	if err := hide(); err != nil {
		return err
	}
	return perform("remove "+pidFile, func() error { return os.Remove(pidFile) })
}

// fault applies the fault that a test has set for this version.
func fault(ctx context.Context, version string) error {
	text, err := os.ReadFile(filepath.Join(folder, "faults", version))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	switch word := strings.TrimSpace(string(text)); {
	case err != nil:
		return err
	case word == "fail":
		return fmt.Errorf("could not insert 'nvidia' %s: %w", version, unix.ENODEV)
	case word == "hang":
		fmt.Println("Building kernel modules")
		<-ctx.Done()
		return ctx.Err()
	default:
		return fmt.Errorf("faults/%s holds %q: must be fail or hang", version, word)
	}
}
