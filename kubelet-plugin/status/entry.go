package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The conditions of a device, with their reasons; those of a refusal come from the caller.
const (
	// Ready is True while the device can be used by the claim's containers.
	Ready = "Ready"
	// ReasonPrepared is why Ready is True.
	ReasonPrepared = "Prepared"

	// Healthy is False while the device has a fault, whose name is the reason. It is only set after a first fault.
	Healthy = "Healthy"
	// ReasonRecovered is the reason of True after a fault.
	ReasonRecovered = "Recovered"

	// TimeSliceApplied is whether the GPU has the time slice that the claim requested; it is only set if the claim requested one.
	TimeSliceApplied = "TimeSliceApplied"
	// ReasonApplied and ReasonDifferent are its reasons.
	ReasonApplied   = "RequestedIntervalInEffect"
	ReasonDifferent = "DifferentIntervalInEffect"
)

// entry is one element of status.devices.
type entry = resourceapi.AllocatedDeviceStatus

// share is an allocated device of this driver and pool.
type share struct{ device, id string }

func shareOf(e entry) share {
	s := share{device: e.Device}
	if e.ShareID != nil {
		s.id = *e.ShareID
	}
	return s
}

// desiredState computes the claim's entries of this node. It is pure; now is the time of transitions.
type desiredState func(o owner, claim *resourceapi.ResourceClaim, now metav1.Time) ([]entry, error)

// owner identifies this agent's entries: those of its driver for devices of its pool. Entries of other drivers and nodes are neither read nor
// written.
type owner struct{ driver, pool string }

// allocated returns the devices of the owner that the claim has, each once: two requests with admin
// access may hold the same device.
func (o owner) allocated(claim *resourceapi.ResourceClaim) []share {
	var shares []share
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		s := share{device: result.Device}
		if result.ShareID != nil {
			s.id = string(*result.ShareID)
		}
		if result.Driver == o.driver && result.Pool == o.pool && !slices.Contains(shares, s) {
			shares = append(shares, s)
		}
	}
	return shares
}

// entries returns the owner's current entries, with only those conditions that this package writes.
func (o owner) entries(claim *resourceapi.ResourceClaim) []entry {
	var found []entry
	for _, e := range claim.Status.Devices {
		if e.Driver != o.driver || e.Pool != o.pool {
			continue
		}
		e = *e.DeepCopy()
		e.Conditions = slices.DeleteFunc(e.Conditions, func(c metav1.Condition) bool { return !slices.Contains(conditionTypes(), c.Type) })
		found = append(found, e)
	}
	return found
}

// entry returns the current entry of the device, or a new one.
func (o owner) entry(claim *resourceapi.ResourceClaim, s share) entry {
	for _, e := range o.entries(claim) {
		if shareOf(e) == s {
			return e
		}
	}
	e := entry{Driver: o.driver, Pool: o.pool, Device: s.device}
	if s.id != "" {
		e.ShareID = new(s.id)
	}
	return e
}

// preparedState returns entries of devices that are ready.
func preparedState(answers []prepare.Answer) desiredState {
	return func(o owner, claim *resourceapi.ResourceClaim, now metav1.Time) ([]entry, error) {
		var entries []entry
		for _, s := range o.allocated(claim) {
			given := slices.DeleteFunc(slices.Clone(answers), func(a prepare.Answer) bool {
				return share{a.Device, a.ShareID} != s || a.Pool != o.pool
			})
			if len(given) == 0 {
				continue
			}
			data := deviceData(given[0])
			for _, again := range given[1:] {
				data.CDIDeviceIDs = union(data.CDIDeviceIDs, again.CDIDevices)
			}
			text, err := data.raw()
			if err != nil {
				return nil, err
			}
			e := o.entry(claim, s)
			e.Data = &runtime.RawExtension{Raw: text}
			setCondition(&e, metav1.Condition{Type: Ready, Status: metav1.ConditionTrue, Reason: ReasonPrepared, LastTransitionTime: now})
			setTimeSliceCondition(&e, data, now)
			entries = append(entries, e)
		}
		return entries, nil
	}
}

// setTimeSliceCondition sets whether the requested time slice is in effect.
func setTimeSliceCondition(e *entry, d Data, now metav1.Time) {
	c := metav1.Condition{Type: TimeSliceApplied, Status: metav1.ConditionTrue, Reason: ReasonApplied, LastTransitionTime: now}
	switch t := d.TimeSlice; {
	case t == nil:
		meta.RemoveStatusCondition(&e.Conditions, TimeSliceApplied)
		return
	case t.Interval != t.RequestedInterval:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonDifferent
		c.Message = fmt.Sprintf("the time slice %s is not in effect on %s: an earlier claim requested %s; request the same, or use another GPU",
			t.RequestedInterval, d.GPU, t.Interval)
	}
	setCondition(e, c)
}

// timeSliceNotices returns a notice for each requested time slice that newly is not in effect.
func timeSliceNotices(before, after []entry) []notice {
	var notices []notice
	for _, e := range after {
		c := meta.FindStatusCondition(e.Conditions, TimeSliceApplied)
		if c == nil || c.Status != metav1.ConditionFalse {
			continue
		}
		known := slices.ContainsFunc(before, func(old entry) bool {
			was := meta.FindStatusCondition(old.Conditions, TimeSliceApplied)
			return shareOf(old) == shareOf(e) && was != nil && was.Status == c.Status && was.Message == c.Message
		})
		if !known {
			notices = append(notices, notice{reason: ReasonTimeSliceNotApplied, message: c.Message})
		}
	}
	return notices
}

// refusedState returns entries of devices that are not ready. Their data is kept.
func refusedState(reason, message string) desiredState {
	return func(o owner, claim *resourceapi.ResourceClaim, now metav1.Time) ([]entry, error) {
		var entries []entry
		for _, s := range o.allocated(claim) {
			e := o.entry(claim, s)
			setCondition(&e, metav1.Condition{Type: Ready, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: now})
			entries = append(entries, e)
		}
		return entries, nil
	}
}

// unpreparedState returns no entries: the claim has no device on the node, even if it stays allocated.
func unpreparedState(owner, *resourceapi.ResourceClaim, metav1.Time) ([]entry, error) {
	return nil, nil
}

// conditionTypes are the conditions that are written here.
func conditionTypes() []string { return []string{Ready, Healthy, TimeSliceApplied} }

// setCondition sets the condition; the time of its last transition is kept if its status does not change.
func setCondition(e *entry, c metav1.Condition) { meta.SetStatusCondition(&e.Conditions, c) }

// union returns the first list and what only the second has.
func union(first, second []string) []string {
	all := slices.Clone(first)
	for _, s := range second {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// sameEntries reports whether both lists are equal, in any order. The API server changes the order of keys in the data.
func sameEntries(a, b []entry) bool {
	return slices.EqualFunc(ordered(a), ordered(b), func(a, b entry) bool {
		if !sameData(a.Data, b.Data) {
			return false
		}
		a.Data, b.Data = nil, nil
		return equality.Semantic.DeepEqual(a, b)
	})
}

func ordered(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int {
		s, t := shareOf(a), shareOf(b)
		return cmp.Or(cmp.Compare(s.device, t.device), cmp.Compare(s.id, t.id))
	})
}

func sameData(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	var one, other any
	return json.Unmarshal(a.Raw, &one) == nil && json.Unmarshal(b.Raw, &other) == nil && reflect.DeepEqual(one, other)
}
