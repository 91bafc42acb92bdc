package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Health returns the node with the faults of its GPUs.
type Health interface {
	// Watch returns the node, whether it is known, and a channel that is closed as soon as any of this changes.
	Watch() (node gpu.Node, known bool, outdated <-chan struct{})
}

// Records are the records of claims on the node.
type Records interface {
	List() ([]prepare.Record, error)
}

// recordsRetryDelay is the pause after the records could not be read.
const recordsRetryDelay = time.Second

// Follow updates the status of claims when the health of their devices changes, and reports faults on the Node, until ctx ends. The agent calls it
// while it leads, and may call it again later: the faults in effect are then reported on the Node again. A recovery while no agent led is
// written by Reconcile. It returns nil.
func (r *Reporter) Follow(ctx context.Context) error {
	events, end := r.newEventWriter(ctx)
	defer end()
	var unhealthy, reported map[string]diagnosis.Diagnosis
	for {
		node, sure, outdated := r.Health.Watch()
		var retry <-chan time.Time
		if sure {
			now := r.unhealthyDevices(node)
			if err := r.enqueueClaimsWith(changedDevices(unhealthy, now)); err != nil {
				klog.FromContext(ctx).Error(err, "The status of claims on GPUs whose health changed is not updated, retrying", "after", recordsRetryDelay)
				retry = time.After(recordsRetryDelay)
			} else {
				unhealthy = now
			}
			faults := r.nodeFaults(node)
			events.write([]corev1.ObjectReference{r.nodeReference()}, r.faultNotices(reported, faults))
			reported = faults
		}
		select {
		case <-ctx.Done():
			return nil
		case <-outdated:
		case <-retry:
		}
	}
}

// nodeReference is the Node as kubelet names it in its own Events, so that both are shown together.
func (r *Reporter) nodeReference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.Node, UID: types.UID(r.Node)}
}

// unhealthyDevices returns the diagnoses of all devices that are not healthy, by name.
func (r *Reporter) unhealthyDevices(node gpu.Node) map[string]diagnosis.Diagnosis {
	found := map[string]diagnosis.Diagnosis{}
	for _, g := range node.GPUs {
		if !g.Lost && len(g.Faults) == 0 {
			continue
		}
		for _, use := range g.AllUses() {
			if d := diagnosis.Of(g, use, r.Rules); !d.Healthy() {
				found[wire.DeviceName(gpu.Device{GPU: g.Name(), Use: use})] = d
			}
		}
	}
	return found
}

// changedDevices returns the names of the devices whose diagnoses differ.
func changedDevices(before, after map[string]diagnosis.Diagnosis) map[string]bool {
	names := map[string]bool{}
	for name, d := range after {
		if was, known := before[name]; !known || was.Message() != d.Message() {
			names[name] = true
		}
	}
	for name := range before {
		if _, still := after[name]; !still {
			names[name] = true
		}
	}
	return names
}

// enqueueClaimsWith queues an update of every prepared claim with one of the devices.
func (r *Reporter) enqueueClaimsWith(devices map[string]bool) error {
	if len(devices) == 0 {
		return nil
	}
	records, err := r.Records.List()
	if err != nil {
		return fmt.Errorf("list the records: %w", err)
	}
	for _, record := range records {
		has := slices.ContainsFunc(record.Wanted, func(w prepare.Wanted) bool { return devices[w.Device] })
		if has && record.State == prepare.StatePrepared && record.BootID == r.BootID {
			r.enqueue(record.Ref, &statusUpdate{claim: record.Ref})
		}
	}
	return nil
}

// updateHealthyCondition sets the condition Healthy of the entries and returns the notices of changes. A device that never had a fault gets no
// condition. While the hardware was not read, nothing is changed.
func (r *Reporter) updateHealthyCondition(entries []entry, now metav1.Time) ([]entry, []notice) {
	node, known, _ := r.Health.Watch()
	if !known || len(entries) == 0 {
		return entries, nil
	}
	unhealthy := r.unhealthyDevices(node)
	var notices []notice
	next := make([]entry, 0, len(entries))
	for _, e := range entries {
		e = *e.DeepCopy()
		var was metav1.Condition
		if c := meta.FindStatusCondition(e.Conditions, Healthy); c != nil {
			was = *c
		}
		d, found := unhealthy[e.Device]
		switch {
		case found:
			setCondition(&e, metav1.Condition{Type: Healthy, Status: metav1.ConditionFalse, Reason: d.Reason, Message: d.Message(), LastTransitionTime: now})
			if was.Status != metav1.ConditionFalse || was.Reason != d.Reason {
				notices = append(notices, notice{reason: ReasonUnhealthy, message: d.Notice()})
			}
		case was.Status == metav1.ConditionFalse:
			setCondition(&e, metav1.Condition{Type: Healthy, Status: metav1.ConditionTrue, Reason: ReasonRecovered, LastTransitionTime: now})
			notices = append(notices, notice{kind: corev1.EventTypeNormal, reason: ReasonGPURecovered, message: fmt.Sprintf("%s recovered: %s ended", e.Device, was.Reason)})
		}
		next = append(next, e)
	}
	return next, notices
}

// nodeFaults returns the node's faults by a unique key. A missing driver is one fault, regardless of the number of GPUs.
func (r *Reporter) nodeFaults(node gpu.Node) map[string]diagnosis.Diagnosis {
	found := map[string]diagnosis.Diagnosis{}
	for _, g := range node.GPUs {
		for _, f := range g.Faults {
			if f.Signal == gpu.SignalDriver {
				f.GPU, f.Since = r.Node, time.Time{}
			}
			found[fmt.Sprintf("%s %v %v", f.GPU, f, f.Placement)] = diagnosis.OfFault(f, r.Rules)
		}
	}
	return found
}

// faultNotices returns the notices of faults that began, worsened or ended.
func (r *Reporter) faultNotices(before, after map[string]diagnosis.Diagnosis) []notice {
	var notices []notice
	for key, d := range after {
		if was, known := before[key]; !known || was.Severity < d.Severity {
			notices = append(notices, notice{reason: ReasonUnhealthy, message: fmt.Sprintf("%s (%v)", d.Notice(), d.Severity)})
		}
	}
	for key, d := range before {
		if _, still := after[key]; !still {
			notices = append(notices, notice{kind: corev1.EventTypeNormal, reason: ReasonGPURecovered, message: d.Over()})
		}
	}
	slices.SortFunc(notices, notice.order)
	return notices
}
