package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Config is what a Preparer works with. Everything is required unless it says otherwise.
type Config struct {
	Inventory Inventory
	Instances Instances
	Modes     Modes
	// TimeSlice is nil on a node that cannot set time slices: a claim that wishes one is refused there.
	TimeSlice TimeSlice
	// Daemons is nil on a node that cannot run MPS daemons: a claim that needs one is refused there.
	Daemons Daemons
	// Passthrough is nil on a node whose GPUs are not for virtual machines: a claim of one is refused there.
	Passthrough Passthrough
	// Shares is how many claims one GPU serves in a shared shape.
	Shares  int
	Records Records
	Specs   Specs
	Claims  Claims
	// Gate is nil where claims may always be prepared.
	Gate Gate
	// BootID names this boot of the machine. What an older record says about hardware is void.
	BootID string
	// LocksDir is the folder of the lock files, shared by all agents of the node. New creates it.
	LocksDir string
	// Observer is told about every step; it may be nil.
	Observer Observer
	// Reconciled is told about every claim that Reconcile found ready, with what Prepare would answer; it
	// may be nil.
	Reconciled func(claim Ref, answers []Answer)
}

// Preparer makes claims usable and takes them back. Its methods are safe for concurrent use, by
// several goroutines and by several processes over the same folders and hardware. Every method may be
// called again at any time: after a crash, an error or the end of its context, the next call carries
// on.
//
// A method waits only for its claim and for the GPUs of its claim. When ctx ends, the error says what
// was waited for and who holds it. Ports are called with the ctx of the method.
type Preparer struct {
	Config
	locks locks
}

// New returns a Preparer over the folders and the hardware of the node.
func New(c Config) (*Preparer, error) {
	if c.BootID == "" {
		return nil, errors.New("prepare claims: the boot id is not known")
	}
	if err := os.MkdirAll(c.LocksDir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare claims: %w", err)
	}
	if c.TimeSlice == nil {
		c.TimeSlice = noTimeSlice{}
	}
	if c.Daemons == nil {
		c.Daemons = noDaemons{}
	}
	if c.Gate == nil {
		c.Gate = noGate{}
	}
	if c.Observer == nil {
		c.Observer = func(When, Ref, Step) {}
	}
	if c.Reconciled == nil {
		c.Reconciled = func(Ref, []Answer) {}
	}
	return &Preparer{Config: c, locks: locks{dir: c.LocksDir}}, nil
}

// noGate stands in where no gate is.
type noGate struct{}

func (noGate) Enter(context.Context, Ref, []string) (func(), error) { return func() {}, nil }

// noTimeSlice stands in on a node that cannot set time slices: there every GPU has the default.
type noTimeSlice struct{}

func (noTimeSlice) Set(_ context.Context, gpuUUID, interval string) error {
	if interval == defaultTimeSlice {
		return nil
	}
	return fmt.Errorf("time slice %s on %s: %w", interval, gpuUUID, gpu.ErrUnsupported)
}

// Prepare makes every device of the claim usable, or none, and returns one answer per device in the
// claim's order. For a claim that is ready it verifies the devices against the hardware, writes the
// CDI spec again and returns the same answers, as often as it is called: pods share claims.
//
// An error wraps AlreadyHeld when another claim holds a device, InTheWay when an instance does that
// Tessera did not make, OutOfService when the Gate refuses a claim that is not ready, or the error of the hardware. What this call had made by then is destroyed;
// only when ctx ended it is left for the next call.
func (p *Preparer) Prepare(ctx context.Context, c Claim) ([]Answer, error) {
	answers, err := p.prepare(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("prepare claim %s: %w", c.Ref, err)
	}
	return answers, nil
}

func (p *Preparer) prepare(ctx context.Context, c Claim) ([]Answer, error) {
	if err := errors.Join(c.validate(), p.validatePassthrough(c)); err != nil {
		return nil, err
	}
	held, err := p.locks.acquireClaim(ctx, c.Ref)
	if err != nil {
		return nil, err
	}
	defer held.releaseAndRemove()
	kept, err := p.loadRecord(c.Ref)
	if err != nil {
		return nil, err
	}
	want := Record{Ref: c.Ref, BootID: p.BootID, Wanted: c.Wanted}
	leave, err := p.enterGate(ctx, kept, want)
	if err != nil {
		return nil, err
	}
	defer leave()
	release, err := p.locks.acquireGPUs(ctx, Record{Wanted: slices.Concat(kept.Wanted, c.Wanted)}.touched(), c.Ref)
	if err != nil {
		return nil, err
	}
	defer release()
	want, err = p.startingRecord(ctx, kept, want)
	if err != nil {
		return nil, err
	}
	return p.ensurePrepared(ctx, want)
}

// enterGate passes the gate for a claim that is not ready.
func (p *Preparer) enterGate(ctx context.Context, kept, want Record) (leave func(), err error) {
	if kept.State == StatePrepared && kept.BootID == p.BootID && kept.same(want) {
		return func() {}, nil
	}
	return p.Gate.Enter(ctx, want.Ref, want.holds())
}

// startingRecord returns the record from which the claim goes on: what is kept, or what is wanted after that was released.
func (p *Preparer) startingRecord(ctx context.Context, kept, want Record) (Record, error) {
	switch {
	case kept.State == stateUnrecorded, kept.State == stateDamaged:
		want.State = kept.State
	case kept.State != StateUnpreparing && kept.BootID == p.BootID && kept.same(want):
		return kept, nil
	default:
		// The record is of another boot, of another allocation, or on its way out.
		if err := p.releaseClaim(ctx, kept); err != nil {
			return Record{}, err
		}
	}
	return want, nil
}

// validatePassthrough returns an error when the claim is for a virtual machine and the node's GPUs are not.
func (p *Preparer) validatePassthrough(c Claim) error {
	i := slices.IndexFunc(c.Wanted, func(w Wanted) bool { return w.Use.Shape == gpu.VFIO })
	if i < 0 || p.Passthrough != nil {
		return nil
	}
	return fmt.Errorf("device %s: this node does not prepare GPUs as %v: %w", c.Wanted[i].Device, gpu.VFIO, gpu.ErrUnsupported)
}

// Unprepare takes everything back that the claim was given and forgets it. A claim that is not known
// is no error. After an error, usually gpu.ErrBusy because a process still uses the device, the claim
// keeps its record and nobody else gets its devices. A GPU that is lost holds nobody up: Unprepare
// succeeds, and Reconcile takes back what lies there once the GPU answers.
func (p *Preparer) Unprepare(ctx context.Context, claim Ref) error {
	err := p.unprepare(ctx, claim)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gpu.ErrLost):
		klog.FromContext(ctx).Error(err, "The claim keeps its record until the GPU is back or the machine boots")
		return nil
	}
	return fmt.Errorf("unprepare claim %s: %w", claim, err)
}

func (p *Preparer) unprepare(ctx context.Context, claim Ref) error {
	if err := claim.validate(); err != nil {
		return err
	}
	held, err := p.locks.acquireClaim(ctx, claim)
	if err != nil {
		return err
	}
	defer held.releaseAndRemove()
	kept, err := p.loadRecord(claim)
	if err != nil {
		return err
	}
	if kept.State == stateDamaged {
		kept, err = p.rebuildRecord(ctx, Record{Ref: claim, State: stateDamaged, BootID: p.BootID})
		switch {
		case errors.Is(err, ErrNoClaim):
			klog.FromContext(ctx).Error(err, "The claim is gone and its record was unreadable: what it held stays")
			return p.deleteRecordAndSpec(ctx, kept)
		case err != nil:
			return err
		}
	}
	unlock, err := p.locks.acquireGPUs(ctx, kept.touched(), claim)
	if err != nil {
		return err
	}
	defer unlock()
	return p.releaseClaim(ctx, kept)
}

// loadRecord returns what is kept for the claim: a record of state unrecorded when nothing is, damaged
// when it could not be read.
func (p *Preparer) loadRecord(claim Ref) (Record, error) {
	r, err := p.Records.Load(claim.UID)
	var unreadable *UnreadableRecord
	switch {
	case errors.Is(err, ErrNoRecord):
		return Record{Ref: claim, State: stateUnrecorded, BootID: p.BootID}, nil
	case errors.As(err, &unreadable):
		return Record{Ref: unreadable.Claim, State: stateDamaged, BootID: p.BootID}, nil
	case err != nil:
		return Record{}, fmt.Errorf("read the record: %w", err)
	}
	return r, nil
}

// rebuildRecord asks the API server what a claim holds whose record could not be read.
func (p *Preparer) rebuildRecord(ctx context.Context, r Record) (Record, error) {
	claim, err := Claim{}, ErrNoClaim
	if r.Name != "" {
		claim, err = p.Claims.Allocated(ctx, r.Ref)
	}
	if err != nil {
		return r, fmt.Errorf("ask what the claim holds, because its record is unreadable: %w", err)
	}
	r.Wanted = claim.Wanted
	return r, nil
}

// ensurePrepared brings the claim of the record to readiness. The locks are held. What was begun and went
// wrong is undone; a claim that was ready stays as it is.
func (p *Preparer) ensurePrepared(ctx context.Context, r Record) ([]Answer, error) {
	var others []Record
	if r.State != StatePrepared || len(r.daemons()) > 0 {
		var err error
		if others, err = p.others(r); err != nil {
			return nil, err
		}
	}
	x := p.newExecution(ctx, r, others)
	x.record = decideIntervals(r, others)
	steps, err := planPrepare(x.record, x.view)
	if err != nil {
		return nil, err
	}
	if err := x.run(ctx, steps); err != nil {
		if x.record.State == StatePreparing && ctx.Err() == nil {
			err = errors.Join(err, x.rollback(ctx))
		}
		return nil, err
	}
	return x.answers, nil
}

// releaseClaim takes the claim of the record back until nothing is left of it. The locks are held. A record
// of another boot is only forgotten.
func (p *Preparer) releaseClaim(ctx context.Context, r Record) error {
	if r.State == stateUnrecorded || r.BootID != p.BootID {
		return p.deleteRecordAndSpec(ctx, r)
	}
	others, err := p.others(r)
	if err != nil {
		return err
	}
	return p.newExecution(ctx, r, others).undo(ctx)
}

// deleteRecordAndSpec drops what is kept for the claim and leaves the hardware alone.
func (p *Preparer) deleteRecordAndSpec(ctx context.Context, r Record) error {
	x := &execution{Preparer: p, record: r}
	return x.run(ctx, []Step{{Kind: RemoveSpec}, {Kind: DeleteRecord}})
}
