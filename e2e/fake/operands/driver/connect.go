package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// connect gives the GPUs the driver whose modules (e2e/fake/modules) were loaded into the kernel, and this container's libraries the GPUs. A driver that was
// unloaded from the kernel meanwhile is taken from the GPUs first. One that a process has open was not: it stays.
func connect(version string) error {
	loaded, err := fakegpu.Modules(folder)
	if err != nil {
		return err
	}
	var kept []fakegpu.Module
	for _, module := range slices.Backward(fakeModules()) {
		if !slices.Contains(loaded, module) {
			continue
		}
		switch err := fakegpu.Rmmod(folder, module); {
		case errors.Is(err, unix.EWOULDBLOCK):
			kept = append(kept, module)
		case err != nil:
			return err
		}
	}
	for _, module := range fakeModules() {
		if slices.Contains(kept, module) {
			continue
		}
		if err := fakegpu.Insmod(folder, module, version); err != nil {
			return err
		}
	}
	state := "/" + fakegpu.StateFile(version)
	if err := unix.Mount(fakegpu.BareState(folder), state, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount the state", Path: state, Err: err}
	}
	fmt.Println("the GPUs have driver " + version)
	return nil
}

// fakeModules are the modules of the driver, in the order in which they are loaded.
func fakeModules() []fakegpu.Module {
	return []fakegpu.Module{fakegpu.NVIDIA, fakegpu.UVM, fakegpu.Modeset}
}
