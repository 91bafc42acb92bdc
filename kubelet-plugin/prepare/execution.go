package prepare

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// tracer makes the spans of steps. They cost nothing if the program does not send them.
var tracer = otel.Tracer("github.com/tessera-gpu/tessera/kubelet-plugin/prepare")

// execution performs the steps of one claim while its locks are held. It makes no decisions: each step takes effect or returns an error.
type execution struct {
	*Preparer
	// record is the record on disk, view the state that was read before the first step.
	record Record
	view   view
	// live are the claim's MIG devices that exist; begun are the placements at which one may exist although its creation failed.
	live  map[place]gpu.Instance
	begun map[place]bool
	// clients are how the claim's devices use their daemons, by the daemon's name; set by EnsureDaemon.
	clients map[string]DaemonFolders
	// groups are the IOMMU groups of the GPUs that are bound, by the GPU's name; set by BindPassthrough.
	groups map[string]string
	// answers are set by WriteSpec.
	answers []Answer
}

// place is the position of a MIG device.
type place struct {
	gpu string
	gpu.Placement
}

// stepFuncs are the functions that perform the steps, by kind.
var stepFuncs = [...]func(*execution, context.Context, Step) error{
	RecordPreparing:   (*execution).recordPreparing,
	SetMode:           (*execution).changeMode,
	CreateInstance:    (*execution).createInstance,
	CompleteInstance:  (*execution).completeInstance,
	Verify:            (*execution).verify,
	SetTimeSlice:      (*execution).setTimeSlice,
	SetComputeMode:    (*execution).setComputeMode,
	EnsureDaemon:      (*execution).ensureDaemon,
	BindPassthrough:   (*execution).bindPassthrough,
	WriteSpec:         (*execution).writeSpec,
	RecordPrepared:    (*execution).recordPrepared,
	RecordUnpreparing: (*execution).recordUnpreparing,
	RemoveSpec:        (*execution).removeSpec,
	NarrowDaemon:      (*execution).narrowDaemon,
	ReleaseDaemon:     (*execution).releaseDaemon,
	UnbindPassthrough: (*execution).unbindPassthrough,
	DestroyInstance:   (*execution).destroyInstance,
	RestoreMode:       (*execution).restoreMode,
	DeleteRecord:      (*execution).deleteRecord,
}

// newExecution reads the GPUs of the record's claim and returns its execution. The records of others are required for planning a claim that is
// not prepared yet, and for undo.
func (p *Preparer) newExecution(ctx context.Context, r Record, others []Record) *execution {
	x := &execution{
		Preparer: p, record: r, view: p.readGPUs(ctx, r, others),
		live: map[place]gpu.Instance{}, begun: map[place]bool{}, clients: map[string]DaemonFolders{}, groups: map[string]string{},
	}
	for _, g := range x.view.gpus {
		for _, i := range g.Instances {
			if r.created(i) {
				x.live[place{i.GPU, i.Placement}] = i
			}
		}
	}
	return x
}

// run performs the steps in order and stops at the first error. Only a MIG device that cannot be destroyed does not stop it: the others are
// destroyed too, but the record is not deleted.
func (x *execution) run(ctx context.Context, steps []Step) error {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("Planned", "steps", steps)
	var errs []error
	for _, s := range steps {
		if s.Kind == DeleteRecord && len(errs) > 0 {
			break
		}
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("timeout before %v: %w", s, context.Cause(ctx)))
			break
		}
		if err := x.perform(ctx, s); err != nil {
			errs = append(errs, err)
			if s.Kind != DestroyInstance {
				break
			}
			continue
		}
		logger.V(4).Info("Done", "step", s)
	}
	return errors.Join(errs...)
}

// perform performs a step within a span, and reports it to the observer.
func (x *execution) perform(ctx context.Context, s Step) error {
	ctx, span := tracer.Start(ctx, s.Kind.String())
	defer span.End()
	x.Observer(Before, x.record.Ref, s)
	if err := stepFuncs[s.Kind](x, ctx, s); err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
		return err
	}
	x.Observer(After, x.record.Ref, s)
	return nil
}

// undo releases what the record's claim holds.
func (x *execution) undo(ctx context.Context) error {
	steps, err := planUndo(x.record, x.view)
	if err != nil {
		return err
	}
	if err := x.run(ctx, steps); err != nil {
		return err
	}
	return x.view.lostGPUError(x.record)
}

// rollback undoes what this execution created, after a step of a claim in state Preparing failed. The record is first reduced to placements at
// which creation has begun: a MIG device at another placement of the claim was created by another program meanwhile and is not destroyed.
func (x *execution) rollback(ctx context.Context) error {
	r := x.record
	r.Wanted, r.Instances = nil, nil
	for _, w := range x.record.Wanted {
		at := place{w.Use.GPU, w.Use.Placement}
		instance, exists := x.live[at]
		if w.Admin || w.Use.Shape != gpu.MIG || exists || x.begun[at] {
			r.Wanted = append(r.Wanted, w)
		}
		if exists {
			r.Instances = append(r.Instances, instance)
		}
	}
	if err := x.newExecution(ctx, r, x.view.others).undo(ctx); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// The steps on the record and the spec.

func (x *execution) recordPreparing(context.Context, Step) error { return x.save(StatePreparing) }

func (x *execution) recordPrepared(ctx context.Context, _ Step) error {
	x.record.Instances = nil
	for _, w := range x.record.Wanted {
		if instance, made := x.live[place{w.Use.GPU, w.Use.Placement}]; made && !w.Admin {
			x.record.Instances = append(x.record.Instances, instance)
		}
	}
	if err := x.save(StatePrepared); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Prepared", "devices", len(x.record.Wanted))
	return nil
}

// recordUnpreparing writes the record before anything is released. On a full disk the claim is released without it: after a crash meanwhile, the claim
// is prepared with missing devices until kubelet unprepares it again.
func (x *execution) recordUnpreparing(ctx context.Context, _ Step) error {
	err := x.save(StateUnpreparing)
	if !isFull(err) {
		return err
	}
	klog.FromContext(ctx).Error(err, "The disk is full: the claim is released without recording that first")
	x.record.State = StateUnpreparing
	return nil
}

func (x *execution) deleteRecord(ctx context.Context, _ Step) error {
	if err := x.Records.Delete(x.record.UID); err != nil {
		return fmt.Errorf("delete the record: %w", err)
	}
	if x.record.State != stateUnrecorded {
		klog.FromContext(ctx).Info("Unprepared", "devices", len(x.record.Wanted))
	}
	return nil
}

func (x *execution) save(s State) error {
	next := x.record
	next.State = s
	if err := x.Records.Save(next); err != nil {
		return fmt.Errorf("record %s: %w", s, err)
	}
	x.record = next
	return nil
}

func (x *execution) writeSpec(context.Context, Step) error {
	devices := make([]Prepared, len(x.record.Wanted))
	for i := range x.record.Wanted {
		devices[i] = x.prepared(i)
	}
	ids, err := x.Specs.Write(x.record.UID, devices)
	if err != nil {
		return fmt.Errorf("write the CDI spec: %w", err)
	}
	x.answers = make([]Answer, len(devices))
	for i, device := range devices {
		x.answers[i] = Answer{Prepared: device, CDIDevices: ids[i]}
	}
	return nil
}

// prepared returns the prepared device at the index.
func (x *execution) prepared(i int) Prepared {
	w := x.record.Wanted[i]
	p := Prepared{
		Result: w.Result, Use: w.Use, Admin: w.Admin, GPU: x.view.on(w.Use.GPU).GPU,
		Settings: w.Settings, Interval: w.Interval,
	}
	switch w.Use.Shape {
	case gpu.MIG:
		instance := x.live[place{w.Use.GPU, w.Use.Placement}]
		p.Instance = &instance
	case gpu.Monitor:
		p.Watched = p.GPU.Instances
	case gpu.VFIO:
		p.IOMMUGroup = x.groups[w.Use.GPU]
	case gpu.None, gpu.Whole, gpu.TimeShare, gpu.MPS:
	}
	p.GPU.Instances = nil
	if name := x.record.daemonOf(i); name != "" {
		p.Daemon = &Client{Name: name, Folders: x.clients[name].of(x.record.UID)}
		p.Daemon.ActiveThreadPercentage, p.Daemon.PinnedMemoryBytes = w.limits()
	}
	return p
}

func (x *execution) removeSpec(context.Context, Step) error {
	if err := x.Specs.Remove(x.record.UID); err != nil {
		return fmt.Errorf("remove the CDI spec: %w", err)
	}
	return nil
}
