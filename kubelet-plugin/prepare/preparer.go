package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Config is what a Preparer needs. Fields are required unless stated otherwise.
type Config struct {
	Inventory Inventory
	Instances Instances
	Modes     Modes
	// Processes is nil on a node whose processes cannot be listed: a claim that holds a GPU is then released only by Unprepare.
	Processes Processes
	// Monitoring is nil if a refused change of the MIG mode is not retried within a call.
	Monitoring Monitoring
	// TimeSlice is nil on a node that cannot set time slices: claims that request one are refused.
	TimeSlice TimeSlice
	// Daemons is nil on a node that cannot run MPS daemons: claims that need one are refused.
	Daemons Daemons
	// Passthrough is nil on a node whose GPUs are not for virtual machines: claims of the shape vfio are refused.
	Passthrough Passthrough
	// Shares is the number of claims that one GPU serves in a shared shape.
	Shares  int
	Records Records
	Specs   Specs
	Claims  Claims
	// Gate is nil if claims may always be prepared.
	Gate Gate
	// BootID identifies the current boot. Records of an earlier boot describe no hardware.
	BootID string
	// LocksDir is the folder of the lock files, which all agents of the node share. New creates it.
	LocksDir string
	// Files is the file system of the lock files; nil means the host's.
	Files disk.FileSystem
	// Observer is called before and after each step; optional.
	Observer Observer
	// Blocked is called at the end of each Reconcile with the number of claims that were not released because they are in use; optional.
	Blocked func(counts map[Usage]int)
	// Reconciled is called for each claim that Reconcile found prepared, with the answers that Prepare would return; optional.
	Reconciled func(claim Ref, answers []Answer)
}

// Preparer prepares and unprepares claims. Its methods are safe for concurrent use, by goroutines and by processes that share the folders
// and the hardware. Each method may be repeated at any time: after a crash, an error or the end of its context, the next call continues.
//
// A method blocks only on the lock of its claim and the locks of the claim's GPUs. When ctx ends, the error names the lock and its holder.
// Ports are called with the ctx of the method.
type Preparer struct {
	Config
	locks locks
}

// New returns a Preparer. Its error means that the configuration is unusable.
func New(c Config) (*Preparer, error) {
	if c.BootID == "" {
		return nil, errors.New("prepare claims: the boot ID is not set")
	}
	if err := disk.MakeFolder(c.Files, c.LocksDir, 0o700); err != nil {
		return nil, fmt.Errorf("prepare claims: %w", err)
	}
	if c.Processes == nil {
		c.Processes = noProcesses{}
	}
	if c.Blocked == nil {
		c.Blocked = func(map[Usage]int) {}
	}
	if c.Monitoring == nil {
		c.Monitoring = noMonitoring{}
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
	return &Preparer{Config: c, locks: locks{files: c.Files, dir: c.LocksDir}}, nil
}

// noGate is the Gate of a node without maintenance: it admits every claim.
type noGate struct{}

func (noGate) Enter(context.Context, Ref, []string) (func(), error) { return func() {}, nil }

// noMonitoring is the Monitoring of a node on which refusals are returned at once.
type noMonitoring struct{}

func (noMonitoring) Retry(_ context.Context, _ string, refusal error) error { return refusal }
func (noMonitoring) Done(string)                                            {}
func (noMonitoring) Pinned(_ string, refusal error) error                   { return refusal }
func (noMonitoring) Destroyed(string)                                       {}

// noTimeSlice is the TimeSlice of a node that cannot set time slices: every GPU has the default.
type noTimeSlice struct{}

func (noTimeSlice) Set(_ context.Context, gpuUUID, interval string) error {
	if interval == defaultTimeSlice {
		return nil
	}
	return fmt.Errorf("time slice %s on %s: %w", interval, gpuUUID, gpu.ErrUnsupported)
}

// Prepare makes all devices of the claim usable, or none, and returns one answer per device in the claim's order. If the claim is already
// prepared, it verifies the devices against the hardware, writes the CDI spec again and returns the same answers: kubelet calls it once for
// each pod that shares the claim, and after each restart.
//
// The error wraps AlreadyHeld if another claim holds a device, ForeignInstance if a MIG device of another program occupies its memory
// slices, OutOfService if the Gate refuses the claim, or an error of the hardware. What the call had created is destroyed, unless ctx has
// ended: then it is left for the next call, which continues from the record.
func (p *Preparer) Prepare(ctx context.Context, c Claim) ([]Answer, error) {
	answers, err := p.prepare(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("prepare claim %s: %w", c.Ref, err)
	}
	return answers, nil
}

// prepare takes the locks and the gate in a fixed order: the claim's lock, the gate, the locks of its GPUs. The record is read under the
// claim's lock, because another agent may be preparing the same claim. The gate comes before the GPUs' locks, because the leader waits for
// the calls inside the gate before it takes the GPUs' locks for a reset.
func (p *Preparer) prepare(ctx context.Context, c Claim) (answers []Answer, err error) {
	if err := errors.Join(c.validate(), p.validatePassthrough(c)); err != nil {
		return nil, err
	}
	lock, err := p.locks.acquireClaim(ctx, c.Ref)
	if err != nil {
		return nil, err
	}
	defer func() { lock.releaseAfter(answers == nil && !p.hasRecord(c.Ref)) }()
	stored, err := p.loadRecord(c.Ref)
	if err != nil {
		return nil, err
	}
	desired := Record{Ref: c.Ref, BootID: p.BootID, Wanted: c.Wanted}
	leave, err := p.enterGate(ctx, stored, desired)
	if err != nil {
		return nil, err
	}
	defer leave()
	// The stored record may name other GPUs than the claim, which are released first.
	unlock, err := p.locks.acquireGPUs(ctx, Record{Wanted: slices.Concat(stored.Wanted, c.Wanted)}.touched(), c.Ref)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := p.startingRecord(ctx, stored, desired)
	if err != nil {
		return nil, err
	}
	return p.ensurePrepared(ctx, r)
}

// enterGate enters the gate, unless the claim is prepared already: a maintenance does not affect running pods.
func (p *Preparer) enterGate(ctx context.Context, stored, desired Record) (leave func(), err error) {
	if stored.State == StatePrepared && stored.BootID == p.BootID && stored.same(desired) {
		return func() {}, nil
	}
	return p.Gate.Enter(ctx, desired.Ref, desired.holds())
}

// startingRecord returns the record from which the claim is prepared: the stored one if it describes the same devices in this boot, else
// the desired one, after what the stored one holds was released. It needs the claim's lock and the GPUs' locks.
func (p *Preparer) startingRecord(ctx context.Context, stored, desired Record) (Record, error) {
	switch {
	case stored.State == stateUnrecorded, stored.State == stateDamaged:
		desired.State = stored.State
	case stored.State != StateUnpreparing && stored.BootID == p.BootID && stored.same(desired):
		return stored, nil
	default:
		// The record is of another boot, of another allocation, or is being unprepared. Containers of another allocation may run.
		if err := p.releaseUnused(ctx, stored); err != nil {
			return Record{}, err
		}
	}
	return desired, nil
}

// validatePassthrough returns an error if the claim is for a virtual machine and the node's GPUs are not.
func (p *Preparer) validatePassthrough(c Claim) error {
	i := slices.IndexFunc(c.Wanted, func(w Wanted) bool { return w.Use.Shape == gpu.VFIO })
	if i < 0 || p.Passthrough != nil {
		return nil
	}
	return fmt.Errorf("device %s: this node does not prepare GPUs as %v: %w", c.Wanted[i].Device, gpu.VFIO, gpu.ErrUnsupported)
}

// Unprepare releases everything that the claim holds and deletes its record. An unknown claim is no error. After an error, usually
// gpu.ErrBusy because a process still uses the device, the record stays and no other claim gets the devices. A full disk does not prevent it; on a
// read-only one it fails until the record can be removed. If a GPU is lost, Unprepare
// succeeds, so that the pod can end; the record stays, and Reconcile releases the rest when the GPU responds again.
func (p *Preparer) Unprepare(ctx context.Context, claim Ref) error {
	err := p.unprepare(ctx, claim)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gpu.ErrLost):
		klog.FromContext(ctx).Error(err, "GPU lost: the record of the claim stays until the GPU responds or the machine reboots")
		return nil
	}
	return fmt.Errorf("unprepare claim %s: %w", claim, err)
}

// unprepare releases the claim under its lock and the locks of its GPUs. It does not enter the gate: releasing is always allowed.
func (p *Preparer) unprepare(ctx context.Context, claim Ref) (err error) {
	if err := claim.validate(); err != nil {
		return err
	}
	lock, err := p.locks.acquireClaim(ctx, claim)
	if err != nil {
		return err
	}
	defer func() { lock.releaseAfter(err == nil) }()
	stored, err := p.loadRecord(claim)
	if err != nil {
		return err
	}
	release := p.releaseClaim
	if stored.State == stateDamaged {
		stored, err = p.rebuildRecord(ctx, Record{Ref: claim, State: stateDamaged, BootID: p.BootID})
		if errors.Is(err, ErrNoClaim) {
			stored, err = p.recoverRecord(ctx, stored)
			release = p.releaseUnused
		}
		if err != nil {
			return err
		}
	}
	unlock, err := p.locks.acquireGPUs(ctx, stored.touched(), claim)
	if err != nil {
		return err
	}
	defer unlock()
	return release(ctx, stored)
}

// LockPrepared returns the record of the prepared claim under its lock: calls of kubelet for the claim wait until unlock is called. The error wraps
// ErrNoRecord if the claim is not prepared.
func (p *Preparer) LockPrepared(ctx context.Context, claim Ref) (r Record, unlock func(), err error) {
	if err := claim.validate(); err != nil {
		return Record{}, nil, err
	}
	lock, err := p.locks.acquireClaim(ctx, claim)
	if err != nil {
		return Record{}, nil, err
	}
	unlock = func() { lock.releaseAfter(!p.hasRecord(claim)) }
	r, err = p.loadRecord(claim)
	if err == nil && (r.State != StatePrepared || r.BootID != p.BootID) {
		err = ErrNoRecord
	}
	if err != nil {
		unlock()
		return Record{}, nil, err
	}
	return r, unlock, nil
}

// hasRecord reports whether the claim has a record, or may have one.
func (p *Preparer) hasRecord(claim Ref) bool {
	r, err := p.loadRecord(claim)
	return err != nil || r.State != stateUnrecorded
}

// loadRecord returns the record of the claim. Its state is stateUnrecorded if there is none, and stateDamaged if it cannot be read.
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

// ensurePrepared performs the steps that the claim of the record still needs. The caller holds the locks. If a step fails, the steps of an
// unfinished claim are undone; a claim that was prepared before keeps its devices, because its pods may be running.
func (p *Preparer) ensurePrepared(ctx context.Context, r Record) ([]Answer, error) {
	// A prepared claim is only compared with the hardware. Other records matter to it if it shares an MPS daemon, whose limits they
	// determine together.
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

// releaseClaim undoes everything that the record describes and deletes it. The caller holds the locks. The hardware state of another boot
// is gone, so only the files of such a record are deleted.
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

// deleteRecordAndSpec deletes the files of the claim and does not change the hardware.
func (p *Preparer) deleteRecordAndSpec(ctx context.Context, r Record) error {
	x := &execution{Preparer: p, record: r}
	return x.run(ctx, []Step{{Kind: RemoveSpec}, {Kind: DeleteRecord}})
}
