package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Config is what an Enforcer needs. All fields are required.
type Config struct {
	Gate *Gate
	// Closed is called when all GPUs go out of service, and again when the last call that was admitted before has ended: claims that are
	// partly prepared should be released.
	Closed func()
	// Hold receives the GPUs that are held for a remedy, by name, with the reasons, whenever they change: no new claims may be allocated
	// to them.
	Hold func(held map[string]string)
	// Taint receives the value of the taint of all devices, empty without one, whenever it changes.
	Taint func(operation string)
	// Group returns the names of the GPUs that can only be reset together with this one, itself included; none if the node does not have it.
	Group func(gpuName string) []string
	// Prepared counts the claims that have a record, PreparedOn those that hold a device of the GPUs.
	Prepared   func() (int, error)
	PreparedOn func(gpus []string) (int, error)
	// Exclusive runs do while no claim is prepared or released on the GPUs, in any agent.
	Exclusive func(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error
	Resetter  Resetter
	// WasReset is called after the GPUs were reset together at the given time and respond again. It is called before the outcome is
	// reported, and by each agent that reads the outcome; it may be called repeatedly for one reset.
	WasReset func(gpus []string, at time.Time)
}

// Status is the part of status.agent that an Enforcer determines.
type Status struct {
	// Maintenance is the ID of the maintenance that is acknowledged; empty without one.
	Maintenance string
	// Prepared is the number of claims that have a record. It is only set with an acknowledged maintenance, and nil if they cannot be
	// counted.
	Prepared *int32
	// Remedies are those whose holds are in effect.
	Remedies []v1alpha1.AgentRemediation
}

// Enforcer applies to the node what the GPUNode orders: it sets the Gate, waits for the calls that were admitted before, and resets GPUs.
// Start, Apply and Advance are called by one goroutine, repeatedly and without blocking; resets run in the background.
//
// A closure goes through two states. It is applied when its file is written: from then on, no other call is admitted. It is drained when
// the calls that an earlier closure admitted have ended. Only a drained closure is acknowledged. Each hold is drained by itself: a hold of
// gpu-a waits for calls on gpu-a, whatever happens on gpu-b.
type Enforcer struct {
	config Config
	resets *resets
	// changed receives a value when Apply and Advance should be called soon.
	changed chan struct{}
	enforcement
}

// enforcement is the state of one period of leadership.
type enforcement struct {
	// applied is whether the gate has the closure; closure is valid only then.
	applied bool
	closure Closure
	// drained is whether every call has ended that the maintenance does not admit.
	drained bool
	// drainedHolds are the holds for which every call has ended that they do not admit, by ID.
	drainedHolds map[string]Hold
}

// NewEnforcer returns an Enforcer that has not started.
func NewEnforcer(c Config) *Enforcer {
	e := &Enforcer{config: c, changed: make(chan struct{}, 1)}
	e.resets = newResets(c, e.wake)
	return e
}

// Start begins a period of leadership. Another agent may have written the closure since the last one, so it is read again. The holds on
// disk are in effect until the GPUNode is read.
func (e *Enforcer) Start() {
	e.enforcement = enforcement{}
	if closure, err := e.config.Gate.Closure(); err == nil {
		e.publish(closure)
	}
}

// publish passes on what ResourceSlices contain of the closure.
func (e *Enforcer) publish(c Closure) {
	e.config.Hold(c.Held())
	e.config.Taint(c.Taint)
}

// Changed returns the channel that receives a value when a reset has begun or ended.
func (e *Enforcer) Changed() <-chan struct{} { return e.changed }

// Wait returns when no reset is running.
func (e *Enforcer) Wait() { e.resets.running.Wait() }

// wake requests that Apply and Advance be called soon.
func (e *Enforcer) wake() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// Apply sets the gate to what the GPUNode orders, nil where there is none, and checks whether calls that were admitted before have ended.
// What fails is retried by the next call.
func (e *Enforcer) Apply(ctx context.Context, node *v1alpha1.GPUNode) error {
	previous := e.closure
	if !e.applied {
		previous, _ = e.config.Gate.Closure() // a file that cannot be read is replaced
	}
	return e.applyClosure(ctx, desiredClosure(node, e.config.Group, previous))
}

// applyClosure sets the gate to the closure if it has another one, and updates what is drained.
func (e *Enforcer) applyClosure(ctx context.Context, desired Closure) error {
	var errs []error
	if !e.applied || !e.closure.equal(desired) {
		var stop bool
		if stop, errs = e.changeClosure(ctx, desired); stop {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, e.updateDrained())...)
}

// changeClosure sets the gate. It returns stop when that failed; other errors are reported and do not matter for what follows.
func (e *Enforcer) changeClosure(ctx context.Context, desired Closure) (stop bool, errs []error) {
	previous, _ := e.config.Gate.Closure() // a file that cannot be read is replaced
	if err := e.config.Gate.setClosure(desired); err != nil {
		e.applied = false
		return true, []error{err}
	}
	newMaintenance := desired.ID != e.closure.ID
	// A validation narrows nothing: the calls that the maintenance does not admit had ended before it began. When it ends, the
	// validations that it admitted have to be waited for.
	e.drained = e.drained && e.applied && !newMaintenance && desired.Validating
	e.drainedHolds = e.stillDrained(desired.Holds)
	e.applied, e.closure = true, desired
	e.publish(desired)
	if err := e.config.Gate.pruneOutcomes(previous.Holds, desired.Holds); err != nil {
		errs = append(errs, err)
	}
	if newMaintenance {
		klog.FromContext(ctx).Info("Maintenance of the GPUs changed", "maintenance", desired.ID, "op", desired.Operation, "reason", desired.Reason)
	}
	if newMaintenance && desired.ID != "" {
		e.config.Closed()
	}
	return false, errs
}

// stillDrained returns those of the new holds, by ID, that were drained and admit no less than before.
func (e *Enforcer) stillDrained(holds []Hold) map[string]Hold {
	drained := map[string]Hold{}
	for _, h := range holds {
		if previous, found := e.drainedHolds[h.ID]; e.applied && found && h.admitsAll(previous) {
			drained[h.ID] = h
		}
	}
	return drained
}

// updateDrained checks for which parts of the closure the calls that were admitted before have ended.
func (e *Enforcer) updateDrained() error {
	var errs []error
	check := func(gpus ...string) bool {
		drained, err := e.config.Gate.drained(gpus...)
		if err != nil {
			errs = append(errs, err)
		}
		return drained
	}
	changed := false
	if e.closure.ID != "" && !e.drained {
		e.drained = check()
		changed = e.drained
	}
	for _, h := range e.closure.Holds {
		if !e.inEffect(h) && check(h.GPUs...) {
			e.drainedHolds[h.ID] = h
			changed = true
		}
	}
	if changed { // a call that timed out leaves its claim partly prepared, for kubelet's next call
		e.config.Closed()
	}
	return errors.Join(errs...)
}

// Draining reports whether calls are waited for that were admitted before.
func (e *Enforcer) Draining() bool {
	return e.applied && (e.closure.ID != "" && !e.drained || slices.ContainsFunc(e.closure.Holds, func(h Hold) bool { return !e.inEffect(h) }))
}

// inEffect reports whether every call has ended that the hold does not admit.
func (e *Enforcer) inEffect(h Hold) bool {
	_, found := e.drainedHolds[h.ID]
	return e.applied && found
}

// Advance begins the resets that are due and returns the status after the last Apply. With an error the status is incomplete. Resets are
// canceled with ctx until they have begun.
func (e *Enforcer) Advance(ctx context.Context) (Status, error) {
	var s Status
	var errs []error
	e.resets.retain(e.closure.Holds)
	for _, h := range e.closure.Holds {
		if !e.inEffect(h) {
			continue
		}
		// Counted after the last call has ended that the hold does not admit: the number only decreases from here on, except for validations.
		prepared, err := e.config.PreparedOn(h.GPUs)
		if err != nil {
			errs = append(errs, fmt.Errorf("count the prepared claims of %s: %w", h.GPU, err))
			continue
		}
		s.Remedies = append(s.Remedies, e.resets.advance(ctx, h, prepared))
	}
	if !e.applied || !e.drained || e.closure.ID == "" {
		return s, errors.Join(errs...)
	}
	s.Maintenance = e.closure.ID
	// Counted after the last call has ended that the maintenance does not admit, as above.
	if count, err := e.config.Prepared(); err != nil {
		errs = append(errs, fmt.Errorf("count the prepared claims: %w", err))
	} else {
		s.Prepared = new(int32(count)) //nolint:gosec // a node has a few thousand claims at most
	}
	return s, errors.Join(errs...)
}
