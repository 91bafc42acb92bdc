package inventory

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// update opens the driver if it is not open, reads the hardware and stores the result as the current snapshot.
func (i *Inventory) update(ctx context.Context) {
	last := i.current.Load()
	next := snapshot{known: true}
	err := i.open(ctx)
	if err == nil {
		next.node, next.foreign, err = i.read(ctx, last)
	}
	switch {
	case ctx.Err() != nil:
		return
	case i.driver == "" && errors.Is(err, context.DeadlineExceeded):
		next = *last // the connection is unchanged; calls to it return its state
	case i.driver == "" || errors.Is(err, gpu.ErrNoDriver):
		i.driver = ""
		next = last.lost()
		if next.driverGoneSince.IsZero() {
			next.driverGoneSince = time.Now()
		}
		next.known = last.known || errors.Is(err, gpu.ErrNoDriver)
	case err != nil:
		next = *last
	}
	i.logError(ctx, err)
	i.publish(ctx, next)
}

// open connects to the driver that is installed now, unless a connection is open. The fingerprint is taken first: the
// next poll detects a change during Reopen.
func (i *Inventory) open(ctx context.Context) error {
	if i.driver != "" {
		return nil
	}
	driver := i.config.Hardware.Driver()
	limited, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if err := i.config.Hardware.Reopen(limited); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Opened the driver", "node", i.config.Node, "driver", driver)
	i.driver = driver
	return nil
}

// reopenTimeout is how long Reopen waits for the present connection, which a call that hangs in the driver holds.
const reopenTimeout = 15 * time.Second

// lost returns the snapshot with every GPU lost. The GPUs stay in it, because they may be allocated.
func (p *snapshot) lost() snapshot {
	node := p.node
	node.GPUs = slices.Clone(node.GPUs)
	for n := range node.GPUs {
		node.GPUs[n].Lost = true
	}
	return snapshot{node: node, foreign: p.foreign, known: p.known, driverGoneSince: p.driverGoneSince}
}

// store applies the overlay to next and makes it the current snapshot if it differs. The caller holds mu.
func (i *Inventory) store(next snapshot) (last *snapshot, changed bool) {
	last = i.current.Load()
	next.outdated = last.outdated
	next.node = i.overlay.apply(next.node, next.driverGoneSince)
	if reflect.DeepEqual(*last, next) {
		return last, false
	}
	next.outdated = make(chan struct{})
	i.current.Store(&next)
	close(last.outdated)
	return last, true
}

// publish stores the snapshot and logs the changes.
func (i *Inventory) publish(ctx context.Context, next snapshot) {
	i.mu.Lock()
	last, changed := i.store(next)
	i.mu.Unlock()
	if !changed {
		return
	}
	logger := klog.FromContext(ctx)
	for _, g := range next.node.GPUs {
		if before, err := last.node.Find(g.Name()); g.Lost != (err == nil && before.Lost) {
			logger.Info("GPU stopped or started responding", "gpu", g.Name(), "lost", g.Lost)
		}
	}
	for _, u := range without(next.foreign, last.foreign) {
		logger.Info("Foreign MIG device found, its memory slices are withheld", "gpu", u.GPU, "instance", u.String(), "uuid", u.UUID)
	}
	for _, u := range without(last.foreign, next.foreign) {
		logger.Info("Foreign MIG device is gone", "gpu", u.GPU, "instance", u.String(), "uuid", u.UUID)
	}
	logger.V(2).Info("Node changed", "node", next.node.Name, "gpus", len(next.node.GPUs), "driverVersion", next.node.DriverVersion)
}

// logError logs an error unless it equals the last one: a node may be without a driver for days.
func (i *Inventory) logError(ctx context.Context, err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble != "" && trouble != i.logged {
		klog.FromContext(ctx).Info("Hardware not read, retrying", "node", i.config.Node, "reason", trouble)
	}
	i.logged = trouble
	i.problem.Store(&trouble)
}
