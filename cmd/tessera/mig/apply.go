package mig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Carver creates and destroys MIG instances (nvml.Session).
type Carver interface {
	Create(ctx context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error)
	Complete(ctx context.Context, i gpu.Instance) (gpu.Instance, error)
	Destroy(ctx context.Context, i gpu.Instance) error
}

// Modes sets MIG modes; nil means that the mode is in effect (nvml.Session).
type Modes interface {
	SetMode(ctx context.Context, gpuName string, m gpu.Mode) error
}

// Clients names the processes that have a GPU open.
type Clients interface {
	Of(g gpu.GPU) []string
}

// executor performs changes.
type executor struct {
	carver  Carver
	modes   Modes
	clients Clients
}

// perform does what the change says. After an error the GPU is again as it was, as far as that could be
// done; the error tells what could not. A running process is never disturbed: the driver refuses to
// destroy what one uses.
func (x executor) perform(ctx context.Context, c change) error {
	undo, err := x.try(ctx, c)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", label(c.gpu), x.explain(c.gpu, err))
	// What was begun is taken back also when the user interrupts.
	ctx = context.WithoutCancel(ctx)
	for i := len(undo) - 1; i >= 0; i-- {
		if back := undo[i](ctx); back != nil {
			return fmt.Errorf("%w\nIt is not as it was before: %w", err, back)
		}
	}
	return err
}

// undoing takes one step back.
type undoing func(context.Context) error

// try does the steps and returns how to take those back that were done or begun.
func (x executor) try(ctx context.Context, c change) ([]undoing, error) {
	var undo []undoing
	name := c.gpu.Name()
	if c.mode == gpu.ModeEnabled {
		if err := x.modes.SetMode(ctx, name, c.mode); err != nil {
			return undo, fmt.Errorf("turn MIG on: %w", err)
		}
		undo = append(undo, func(ctx context.Context) error { return x.modes.SetMode(ctx, name, gpu.ModeDisabled) })
	}
	for _, i := range c.destroy {
		undo = append(undo, func(ctx context.Context) error { return x.restore(ctx, i) })
		if err := x.carver.Destroy(ctx, i); err != nil {
			return undo, fmt.Errorf("destroy %v: %w", i, err)
		}
	}
	for _, p := range c.create {
		made, err := x.create(ctx, c.gpu, p)
		if made != nil {
			undo = append(undo, func(ctx context.Context) error { return x.carver.Destroy(ctx, *made) })
		}
		if err != nil {
			return undo, err
		}
	}
	if c.mode == gpu.ModeDisabled {
		if err := x.modes.SetMode(ctx, name, c.mode); err != nil {
			return undo, fmt.Errorf("turn MIG off: %w", err)
		}
	}
	return undo, nil
}

// create makes the instance; what was begun is returned with an error, too.
func (x executor) create(ctx context.Context, g gpu.GPU, p gpu.Placement) (*gpu.Instance, error) {
	profile, err := g.Geometry.Legal(p)
	if err != nil {
		return nil, err
	}
	made, err := x.carver.Create(ctx, g.Name(), p)
	if err != nil {
		return nil, fmt.Errorf("create %s at slice %d: %w", profile.Name, p.Start, err)
	}
	whole, err := x.carver.Complete(ctx, made)
	if err != nil {
		return &made, fmt.Errorf("complete %s at slice %d: %w", profile.Name, p.Start, err)
	}
	return &whole, whole.Verify(profile, p)
}

// restore makes an instance again that was destroyed, or only half of it. One that stayed as it was
// refuses to be made twice.
func (x executor) restore(ctx context.Context, i gpu.Instance) error {
	made, err := x.carver.Create(ctx, i.GPU, i.Placement)
	if errors.Is(err, gpu.ErrOccupied) {
		made, err = i, nil
	}
	if err != nil || i.CI == gpu.NoCompute {
		return err
	}
	if _, err = x.carver.Complete(ctx, made); errors.Is(err, gpu.ErrOccupied) {
		return nil
	}
	return err
}

// explain names who is in the way of an operation that the driver refused.
func (x executor) explain(g gpu.GPU, err error) error {
	if !errors.Is(err, gpu.ErrBusy) {
		return err
	}
	clients := x.clients.Of(g)
	if len(clients) == 0 {
		return fmt.Errorf("%w\nA process that cannot be seen from here uses it: drain the node and try again", err)
	}
	return fmt.Errorf("%w\nProcesses that have the GPU open: %s. End them, or drain the node, and try again", err, strings.Join(clients, ", "))
}
