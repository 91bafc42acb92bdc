package prepare

import (
	"cmp"
	"slices"
)

// The time slice is a setting of the GPU. The first claim that requests an interval decides. For a later claim that requests another one, the
// interval in effect is recorded, so that the records alone show the GPU's setting, and which claim is the last one that needs it.

// defaultTimeSlice is the interval of a GPU without a claim that requests another one.
const defaultTimeSlice = "Default"

// decideIntervals returns the record with the intervals that its devices will have. A claim that was begun keeps those that were decided then.
func decideIntervals(r Record, others []Record) Record {
	if r.State != stateUnrecorded && r.State != stateDamaged {
		return r
	}
	r.Wanted = slices.Clone(r.Wanted)
	for i, w := range r.Wanted {
		if w.Settings.TimeSlice != "" && !w.Admin {
			r.Wanted[i].Interval = cmp.Or(interval(activeRecords(others), w.Use.GPU), r.interval(w.Use.GPU), w.Settings.TimeSlice)
		}
	}
	return r
}

// interval returns the interval that the record has for the GPU; empty if the claim requested none.
func (r Record) interval(gpuName string) string {
	for _, w := range r.on(gpuName) {
		if w.Interval != "" {
			return w.Interval
		}
	}
	return ""
}

// interval returns the interval that one of the records has for the GPU.
func interval(records []Record, gpuName string) string {
	for _, r := range records {
		if class := r.interval(gpuName); class != "" {
			return class
		}
	}
	return ""
}

// activeRecords returns the records of the claims that are not being unprepared.
func activeRecords(records []Record) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.State == StateUnpreparing })
}
