package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// load loads the modules of a version. A loaded driver of that version stays: the previous container left it.
func load(version string) error {
	state, err := fakegpu.Read(folder)
	if err != nil {
		return err
	}
	if state.DriverLoaded && state.DriverVersion != version {
		fmt.Printf("Stopping driver %s\n", state.DriverVersion)
		if err := unload(); err != nil {
			return fmt.Errorf("unload driver %s: %w", state.DriverVersion, err)
		}
	}
	for _, module := range []fakegpu.Module{fakegpu.NVIDIA, fakegpu.UVM, fakegpu.Modeset} {
		fmt.Printf("Loading %s of driver %s\n", module, version)
		if err := fakegpu.Insmod(folder, module, version); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// unload removes all modules, users before used. A process that uses them keeps them loaded.
func unload() error {
	for _, module := range []fakegpu.Module{
		fakegpu.Peermem, fakegpu.GDS, fakegpu.GDRCopy, fakegpu.Modeset, fakegpu.UVM, fakegpu.NVIDIA,
	} {
		if err := fakegpu.Rmmod(folder, module); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return os.RemoveAll(stateFile)
}

// pause is the interval at which the driver's presence is checked.
const pause = time.Second

// companion loads a module that needs the driver's, once that is loaded, and keeps it until ctx ends.
func companion(ctx context.Context, module fakegpu.Module) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for loaded := false; !loaded; {
		state, err := fakegpu.Read(folder)
		if err != nil {
			return err
		}
		if loaded = state.DriverLoaded; loaded {
			err := fakegpu.Insmod(folder, module, state.DriverVersion)
			if err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	fmt.Printf("%s is loaded\n", module)
	<-ctx.Done()
	if err := fakegpu.Rmmod(folder, module); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
