// Command driver implements the containers of a driver by NVIDIA's contract, for fake machines. As nvidia-driver, `init` loads the modules of the version
// in DRIVER_VERSION, shows its root below /run/nvidia/driver, and unloads at SIGTERM; `reload_nvidia_peermem` loads that module. As nvidia-gds-driver and
// nvidia-gdrcopy-driver, `install` loads nvidia_fs and gdrdrv.
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
		return companion(ctx, fakegpu.Peermem)
	case "nvidia-gds-driver install":
		return companion(ctx, fakegpu.GDS)
	case "nvidia-gdrcopy-driver install":
		return companion(ctx, fakegpu.GDRCopy)
	default:
		return fmt.Errorf("%s: unknown: must be nvidia-driver init or reload_nvidia_peermem, nvidia-gds-driver install, nvidia-gdrcopy-driver install", line)
	}
}

// install installs the driver on the machine and keeps it there until ctx ends.
func install(ctx context.Context, version string) error {
	fmt.Println("========== NVIDIA Software Installer ==========")
	if err := fault(ctx, version); err != nil {
		return err
	}
	if err := hide(); err != nil {
		return fmt.Errorf("unmount the root of a former driver: %w", err)
	}
	if err := load(version); err != nil {
		return err
	}
	if err := show(version); err != nil {
		return fmt.Errorf("show the root of driver %s: %w", version, err)
	}
	if err := writeState(); err != nil {
		return err
	}
	fmt.Println("Done, now waiting for signal")
	<-ctx.Done()
	fmt.Println("Caught signal")
	if err := unload(); err != nil {
		return fmt.Errorf("could not unload the driver: %w", err)
	}
	return hide()
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

// stateFile keeps the digest of the installed driver, as NVIDIA's containers do: a later container with the same digest keeps the modules.
const stateFile = "/run/nvidia/nvidia-driver.state"

func writeState() error {
	digest := os.Getenv("DRIVER_CONFIG_DIGEST")
	if digest == "" {
		return nil
	}
	return os.WriteFile(stateFile, []byte(digest+"\n"), 0o644)
}
