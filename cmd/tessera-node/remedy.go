package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/smi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/maintenance"
)

var _ maintenance.Resetter = (*resetter)(nil)

// connection is the part of the driver session that a reset uses.
type connection interface {
	Disconnected(ctx context.Context, f func(context.Context) error) error
	Users(ctx context.Context, gpuName string) ([]int, error)
	Check(ctx context.Context, gpuName string) (gpu.Checkup, error)
}

// resetter resets GPUs while this process has no GPU open, and waits until they respond again.
type resetter struct {
	node       func() gpu.Node
	connection connection
	// reset resets GPUs by their PCI addresses.
	reset func(ctx context.Context, addresses []string) error
	// refresh requests a new read of the hardware.
	refresh func()
}

// responseTimeout bounds how long a GPU can take to respond after its reset. It is checked every responsePeriod.
const (
	responseTimeout = 45 * time.Second
	responsePeriod  = 500 * time.Millisecond
	// grace bounds how long Reset waits after the end of its context. Then it returns, and the goroutine continues.
	grace = 5 * time.Second
)

// resetter returns the component that resets the GPUs of the node.
func (a *agent) resetter(c config) *resetter {
	return &resetter{node: a.inventory.Node, connection: a.hardware, reset: smi.New(c.nvidiaSMI).Reset, refresh: a.inventory.Refresh}
}

// resetGroup returns the GPUs that can only be reset together with this one.
func (a *agent) resetGroup(gpuName string) []string {
	return a.inventory.Node().ResetGroup(gpuName)
}

// Reset implements maintenance.Resetter. After ctx has ended, it does not wait for a driver call that does not return.
func (r *resetter) Reset(ctx context.Context, gpus []string, touch func()) (time.Time, error) {
	type end struct {
		at  time.Time
		err error
	}
	ended := make(chan end, 1)
	go func() {
		at, err := r.attempt(ctx, gpus, touch)
		ended <- end{at, err}
	}()
	select {
	case e := <-ended:
		return e.at, e.err
	case <-ctx.Done():
	}
	select {
	case e := <-ended:
		return e.at, e.err
	case <-time.After(grace):
		return time.Time{}, fmt.Errorf("reset %s: nvidia-smi does not return: reboot the node: %w", strings.Join(gpus, ", "), context.Cause(ctx))
	}
}

// attempt resets the GPUs, waits until they respond and returns when they were reset.
func (r *resetter) attempt(ctx context.Context, gpus []string, touch func()) (at time.Time, err error) {
	addresses, err := r.idle(ctx, gpus)
	if err != nil {
		return at, err
	}
	ran := false
	var failed error
	err = r.connection.Disconnected(ctx, func(ctx context.Context) error {
		if ctx.Err() != nil { // Reset has returned
			return context.Cause(ctx)
		}
		touch()
		ran, failed = true, r.reset(ctx, addresses)
		at = time.Now()
		return failed
	})
	r.refresh()
	switch {
	case !ran:
		return at, fmt.Errorf("reset %s: %w", strings.Join(gpus, ", "), err)
	case failed != nil:
		return at, failed
	}
	// If the driver could not be reopened, the inventory retries; the GPUs respond once it is open.
	if late := r.waitForGPUs(ctx, gpus); late != nil {
		return at, errors.Join(late, err)
	}
	return at, nil
}

// idle returns the PCI addresses of the GPUs, or an error with the processes that use one of them. The processes of a GPU that
// does not respond cannot be queried and are not considered.
func (r *resetter) idle(ctx context.Context, gpus []string) ([]string, error) {
	node := r.node()
	var addresses []string
	for _, name := range gpus {
		g, err := node.Find(name)
		if err != nil {
			return nil, err
		}
		pids, err := r.connection.Users(ctx, name)
		if err == nil && len(pids) > 0 {
			slices.Sort(pids) // a stable message, so that the GPUNode's status is not written again
			return nil, fmt.Errorf("processes %v use %s: end them, or remove the pods of monitoring from the node: %w", pids, name, gpu.ErrBusy)
		}
		addresses = append(addresses, g.PCI)
	}
	return addresses, nil
}

// waitForGPUs waits until all GPUs respond.
func (r *resetter) waitForGPUs(ctx context.Context, gpus []string) error {
	limited, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	tick := time.NewTicker(responsePeriod)
	defer tick.Stop()
	for _, name := range gpus {
		for {
			_, err := r.connection.Check(limited, name)
			if err == nil {
				break
			}
			r.refresh()
			select {
			case <-limited.Done():
				return fmt.Errorf("%s does not respond for %v after its reset: reboot the node: %w", name, responseTimeout, err)
			case <-tick.C:
			}
		}
	}
	return nil
}
