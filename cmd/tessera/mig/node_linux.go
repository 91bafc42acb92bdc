//go:build linux && cgo

package mig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
)

// The folders of a driver's data, as the agent lays them out.
const (
	claimsFolder = "claims"
	locksFolder  = "locks"
)

// node is the node with its real hardware.
type node struct {
	host    Host
	session *nvml.Session
}

// open connects to the driver of this node.
func open(ctx context.Context, h Host) (Node, error) {
	roots := driverroot.Roots{Host: h.Root, Proc: h.Proc, Sys: h.Sys, Driver: h.Driver, Dev: h.Dev}
	return connect(ctx, h, nvml.Config{Library: roots.Library, SysRoot: h.Sys})
}

func connect(ctx context.Context, h Host, c nvml.Config) (Node, error) {
	session := nvml.New(c)
	if err := session.Reopen(ctx); err != nil {
		session.Close() //nolint:contextcheck // it also closes after ctx has ended
		if errors.Is(err, gpu.ErrNoDriver) {
			return nil, fmt.Errorf("%w\nThis verb changes the GPUs of the machine it runs on: run it as root on a GPU node, with --driver-root if the driver is not found by itself", err)
		}
		return nil, err
	}
	return &node{host: h, session: session}, nil
}

// Look reads the hardware and then the records: in this order an instance that is being made is never a
// stranger, because its record came first.
func (n *node) Look(ctx context.Context) (machine, []string, error) {
	read, err := n.session.Read(ctx)
	if err != nil {
		return machine{}, nil, err
	}
	m := machine{node: read, models: models(n.host.Sys, read)}
	var notes []string
	for _, driver := range n.host.Drivers {
		folder := filepath.Join(n.host.Plugins, driver, claimsFolder)
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			continue
		}
		holds, told, err := records(folder)
		if err != nil {
			return machine{}, nil, err
		}
		m.holds, notes = append(m.holds, holds...), append(notes, told...)
	}
	return m, notes, nil
}

// records returns what the records of one driver hold. A record that cannot be read is an error: what it
// holds is not known, so nothing may be touched.
func records(folder string) ([]hold, []string, error) {
	var notes []string
	store, err := checkpoint.Open(folder, func(path string, err error) {
		notes = append(notes, fmt.Sprintf("The record %s cannot be read: %v", path, err))
	})
	if err != nil {
		return nil, nil, err
	}
	list, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	if _, all, err := store.Held(); err != nil || !all {
		return nil, nil, errors.Join(err, fmt.Errorf("read %s: a claim's record is unreadable, so nobody knows what it holds: let the agent bring it in order first", folder))
	}
	var holds []hold
	for _, r := range list {
		for _, w := range r.Wanted {
			if !w.Admin {
				holds = append(holds, hold{claim: r.String(), Device: w.Use})
			}
		}
	}
	return holds, notes, nil
}

// Lock takes the locks that the agents take before they touch a GPU, driver by driver.
func (n *node) Lock(ctx context.Context, gpus []string) (func(), error) {
	var held []*os.File
	unlock := func() {
		for _, file := range slices.Backward(held) {
			// Close of a file that was only locked has nothing to report.
			_ = file.Close()
		}
	}
	for _, driver := range n.host.Drivers {
		folder := filepath.Join(n.host.Plugins, driver, locksFolder)
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, name := range gpus {
			file, err := lock(ctx, filepath.Join(folder, name+".lock"))
			if err != nil {
				unlock()
				return nil, fmt.Errorf("wait for %s: %w", name, err)
			}
			held = append(held, file)
		}
	}
	return unlock, nil
}

// Executor performs changes through the session.
func (n *node) Executor() executor {
	return executor{carver: n.session, modes: n.session, clients: clients{proc: n.host.Proc, dev: n.devices()}}
}

// devices returns the folder of the device nodes.
func (n *node) devices() string {
	for _, root := range []string{n.host.Dev, n.host.Driver, n.host.Root} {
		folder := filepath.Join(root, "dev")
		if _, err := os.Stat(filepath.Join(folder, "nvidiactl")); root != "" && err == nil {
			return folder
		}
	}
	return filepath.Join(n.host.Root, "dev")
}

// Close ends the connection.
func (n *node) Close() { n.session.Close() }
