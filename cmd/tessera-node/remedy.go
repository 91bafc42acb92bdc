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

// connection is the agent's connection to the driver, as far as a reset is concerned.
type connection interface {
	Disconnected(ctx context.Context, f func(context.Context) error) error
	Users(ctx context.Context, gpuName string) ([]int, error)
	Check(ctx context.Context, gpuName string) (gpu.Checkup, error)
}

// resetter resets GPUs: while this process has none of them open, and until all of them answer again.
type resetter struct {
	node       func() gpu.Node
	connection connection
	// reset resets GPUs by their PCI addresses.
	reset func(ctx context.Context, addresses []string) error
	// look asks for the hardware to be read again soon.
	look func()
}

// answerLimit is how long a GPU may take to answer after its reset, answerPause how long it is waited between two questions.
const (
	answerLimit = 45 * time.Second
	answerPause = 500 * time.Millisecond
	// grace is how long what heeds the end of its context may take to say how far it came; then it is left alone.
	grace = 5 * time.Second
)

// resetter returns who resets the GPUs of the node.
func (a *agent) resetter(c config) *resetter {
	return &resetter{node: a.inventory.Node, connection: a.hardware, reset: smi.New(c.nvidiaSMI).Reset, look: a.inventory.Refresh}
}

// resetGroup returns the GPUs that can only be reset together with this one.
func (a *agent) resetGroup(gpuName string) []string {
	return a.inventory.Node().ResetGroup(gpuName)
}

// Reset implements maintenance.Resetter. A question that a GPU never answers, which no context ends, is left behind when ctx has ended.
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

// attempt resets the GPUs, waits until they answer and returns when they were reset.
func (r *resetter) attempt(ctx context.Context, gpus []string, touch func()) (at time.Time, err error) {
	addresses, err := r.idle(ctx, gpus)
	if err != nil {
		return at, err
	}
	ran := false
	var failed error
	err = r.connection.Disconnected(ctx, func(ctx context.Context) error {
		if ctx.Err() != nil { // nobody waits for it any more
			return context.Cause(ctx)
		}
		touch()
		ran, failed = true, r.reset(ctx, addresses)
		at = time.Now()
		return failed
	})
	r.look()
	switch {
	case !ran:
		return at, fmt.Errorf("reset %s: %w", strings.Join(gpus, ", "), err)
	case failed != nil:
		return at, failed
	}
	// A connection that could not be opened again is what the inventory looks after; the GPUs answer as soon as it is there.
	if late := r.answer(ctx, gpus); late != nil {
		return at, errors.Join(late, err)
	}
	return at, nil
}

// idle returns the addresses of the GPUs, or who uses one of them. A GPU that does not answer has no users that one could ask for.
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
			slices.Sort(pids) // the GPUNode is written again when the words change
			return nil, fmt.Errorf("processes %v use %s: end them, or remove the pods of monitoring from the node: %w", pids, name, gpu.ErrBusy)
		}
		addresses = append(addresses, g.PCI)
	}
	return addresses, nil
}

// answer waits until all of the GPUs answer.
func (r *resetter) answer(ctx context.Context, gpus []string) error {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	tick := time.NewTicker(answerPause)
	defer tick.Stop()
	for _, name := range gpus {
		for {
			_, err := r.connection.Check(limited, name)
			if err == nil {
				break
			}
			r.look()
			select {
			case <-limited.Done():
				return fmt.Errorf("%s does not respond for %v after its reset: reboot the node: %w", name, answerLimit, err)
			case <-tick.C:
			}
		}
	}
	return nil
}
