package index

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// header identifies a snapshot: the node, and the revisions of the last change of the node and of its published
// content.
type header struct {
	name              string
	revision, content uint64
}

// newSnapshot returns the node with the allocated devices, in order of claim and result, and the nominated devices. The
// result depends on the arguments only.
func (c *publishedContent) newSnapshot(h header, allocated []Held, promises []*nomination) *Node {
	n := &Node{
		Name: h.name, Revision: h.revision, Content: h.content,
		Fit:    fit.Node{Name: h.name, GPUs: c.gpus, Devices: c.layout.devices, Wiring: c.wiring},
		Driver: c.pool.driver, Pool: c.pool.name, Devices: c.devices,
		Slices: c.slices, Foreign: c.foreign,
		content: c, nominations: promises,
	}
	if len(allocated)+len(promises) > 0 {
		n.Fit.GPUs = slices.Clone(c.gpus)
	}
	t := occupancyBuilder{content: c, gpus: n.Fit.GPUs}
	n.Held = allocated
	for i := range n.Held {
		t.addAllocated(&n.Held[i])
	}
	for _, p := range promises {
		for _, result := range p.devices {
			if h := (Held{Pod: p.pod, Result: result}); t.addNominated(&h, n.Held) {
				n.Held = append(n.Held, h)
			}
		}
	}
	t.withholdLost()
	n.DelegateReason = errors.Join(append(t.problems, c.delegateReason)...)
	n.load = n.measureLoad()
	return n
}

// occupancyBuilder takes allocated and nominated devices from the GPUs of a new snapshot.
type occupancyBuilder struct {
	content  *publishedContent
	gpus     []fit.GPU
	problems []error
	// lost are the memory slices of devices that cannot be held, by position of the GPU. withholdLost withholds them at
	// the end, so that they do not conflict with devices that can be held.
	lost map[int]gpu.Mask
	// seen are the devices, or shares, for which Occupancy.Take accepts a second holder.
	seen map[deviceID]bool
}

// addAllocated takes a device that a claim holds. If it cannot be held, its memory slices are withheld and the problem
// is recorded.
func (t *occupancyBuilder) addAllocated(h *Held) {
	if t.isUnreadable(h) {
		return
	}
	if err := t.takeDevice(h); err != nil {
		t.problems = append(t.problems, fmt.Errorf("claim %s holds device %q of pool %q: %w", h.Claim, h.Result.Device, h.Result.Pool, err))
	}
}

// isUnreadable reports whether the device is not in our pool, or our pool cannot be read. Such a device has no effect
// on the GPUs.
func (t *occupancyBuilder) isUnreadable(h *Held) bool {
	incomplete := t.content.delegateReason != nil && len(t.content.layout.devices) == 0
	return incomplete || h.Result.Driver != t.content.pool.driver || h.Result.Pool != t.content.pool.name
}

// addNominated takes a nominated device in addition to the held ones, and reports whether it is free. If it is not, its
// memory slices are withheld.
func (t *occupancyBuilder) addNominated(h *Held, held []Held) bool {
	if t.isUnreadable(h) {
		return !slices.ContainsFunc(held, func(other Held) bool { return deviceIDOf(&other.Result) == deviceIDOf(&h.Result) })
	}
	return t.takeDevice(h) == nil
}

// takeDevice takes the device. The error is the reason why it cannot be held; its memory slices are then added to lost.
func (t *occupancyBuilder) takeDevice(h *Held) error {
	at, use, published := t.content.useOf(h)
	if !published {
		return errUnpublished
	}
	g := &t.gpus[at]
	err := t.checkSecondHolder(h, use.Shape)
	if err == nil {
		var after gpu.Occupancy
		if after, err = g.Occupancy.Take(use); err == nil {
			g.Occupancy = after
			return nil
		}
	}
	if cost, unknown := g.Kind.Geometry.Cost(use); unknown == nil {
		if t.lost == nil {
			t.lost = map[int]gpu.Mask{}
		}
		t.lost[at] |= cost.Slices
	}
	return err
}

// withholdLost withholds the memory slices of devices that cannot be held.
func (t *occupancyBuilder) withholdLost() {
	for position, slices := range t.lost {
		t.gpus[position].Occupancy = t.gpus[position].Occupancy.Withhold(slices)
	}
}

// checkSecondHolder returns an error for a second holder that Occupancy.Take accepts: of a monitor, or of the same
// share of a shared device.
func (t *occupancyBuilder) checkSecondHolder(h *Held, shape gpu.Shape) error {
	if !shape.Shared() && shape != gpu.Monitor {
		return nil
	}
	if shape.Shared() && h.Result.ShareID == nil {
		return errNoShare
	}
	id := deviceIDOf(&h.Result)
	if t.seen[id] {
		return errHeldTwice
	}
	if t.seen == nil {
		t.seen = map[deviceID]bool{}
	}
	t.seen[id] = true
	return nil
}

// Reasons why a device cannot be held.
var (
	errUnpublished = errors.New("the device is not published")
	errNoShare     = errors.New("the device is shared, but the allocation lacks a share ID")
	errHeldTwice   = errors.New("another claim holds the same device")
)
