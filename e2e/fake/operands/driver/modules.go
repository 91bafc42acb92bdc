package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// load loads the modules of a version. nvidia_peermem is among them where RDMA is enabled and the machine has a network adapter.
func load(version string) error {
	for _, module := range []fakegpu.Module{fakegpu.NVIDIA, fakegpu.UVM, fakegpu.Modeset} {
		if err := perform("modprobe "+dashed(module), func() error { return insmod(module, version) }); err != nil {
			return err
		}
	}
	if os.Getenv(rdmaEnv) != "true" || !hasAdapter() {
		return nil
	}
	return perform("modprobe "+dashed(fakegpu.Peermem), func() error { return insmod(fakegpu.Peermem, version) })
}

// insmod loads a module. One that is loaded already is no error.
func insmod(module fakegpu.Module, version string) error {
	if err := fakegpu.Insmod(folder, module, version); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// dashed is the name of a module in NVIDIA's entry points.
func dashed(module fakegpu.Module) string { return strings.ReplaceAll(string(module), "_", "-") }

// unload removes all modules, users before used. A process that uses them keeps them loaded.
func unload() error {
	loaded, err := fakegpu.Modules(folder)
	if err != nil {
		return err
	}
	var names []string
	for _, module := range []fakegpu.Module{
		fakegpu.GDS, fakegpu.GDRCopy, fakegpu.Modeset, fakegpu.UVM, fakegpu.Peermem, fakegpu.NVIDIA,
	} {
		if slices.Contains(loaded, module) {
			names = append(names, dashed(module))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return perform("rmmod "+strings.Join(names, " "), func() error {
		for _, name := range names {
			if err := fakegpu.Rmmod(folder, fakegpu.Module(strings.ReplaceAll(name, "-", "_"))); err != nil {
				return err
			}
		}
		return nil
	})
}

// pause is the interval at which the driver's presence is checked.
const pause = time.Second

// driverLoaded reports whether sidecars can load their modules.
func driverLoaded() (bool, error) {
	state, err := fakegpu.Read(folder)
	return state.DriverLoaded, err
}

// networkReady reports whether nvidia_peermem can be loaded: the network driver's container or the host has loaded its driver, and the driver container
// of this pod is ready.
func networkReady() (bool, error) {
	network := exists(mofedFile)
	if os.Getenv(mofedEnv) == "true" {
		network = networkLoaded()
	}
	return network && exists(readyFile), nil
}

// networkLoaded reports whether the machine has loaded the module of its network adapters.
func networkLoaded() bool {
	loaded, err := fakegpu.Modules(folder)
	return err == nil && slices.Contains(loaded, "mlx5_core")
}

// hasAdapter reports whether the machine has a Mellanox network adapter.
func hasAdapter() bool {
	files, err := filepath.Glob(filepath.Join(fakegpu.SysRoot(folder), "bus/pci/devices/*/vendor"))
	return err == nil && slices.ContainsFunc(files, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && strings.TrimSpace(string(text)) == "0x15b3"
	})
}

// probePeermem fails while the network driver is loaded and nvidia_peermem is not.
func probePeermem() error {
	if networkLoaded() && !exists(filepath.Join(fakegpu.SysRoot(folder), "module", string(fakegpu.Peermem), "refcnt")) {
		return errors.New("nvidia-peermem module is not loaded")
	}
	return nil
}

// companion loads a module that needs the driver's, once that is loaded and ready reports true, and keeps it until ctx ends.
func companion(ctx context.Context, module fakegpu.Module, ready func() (bool, error)) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		loaded, err := ready()
		if err != nil {
			return err
		}
		if loaded {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	state, err := fakegpu.Read(folder)
	if err != nil {
		return err
	}
	if err := insmod(module, state.DriverVersion); err != nil {
		return err
	}
	fmt.Printf("%s is loaded\n", module)
	<-ctx.Done()
	if err := fakegpu.Rmmod(folder, module); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
