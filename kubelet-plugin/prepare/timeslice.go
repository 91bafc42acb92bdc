package prepare

import (
	"cmp"
	"slices"
)

// The time-slice class belongs to the GPU. The first claim that wishes one decides; a later wish for
// another is recorded as what is in effect instead, so that the records alone say what the GPU has and
// when the last claim is gone that counts on it.

// defaultTimeSlice is the time-slice class that a GPU has when no claim wishes another.
const defaultTimeSlice = "Default"

// decideIntervals returns the record with the classes that its devices will have. A claim that was
// begun keeps what was decided then.
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

// interval returns the class that the claim has decided or accepted for the GPU; empty where it wished
// none.
func (r Record) interval(gpuName string) string {
	for _, w := range r.on(gpuName) {
		if w.Interval != "" {
			return w.Interval
		}
	}
	return ""
}

// interval returns the class that any of the records has for the GPU.
func interval(records []Record, gpuName string) string {
	for _, r := range records {
		if class := r.interval(gpuName); class != "" {
			return class
		}
	}
	return ""
}

// activeRecords returns the records of the claims that are not on their way out.
func activeRecords(records []Record) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.State == StateUnpreparing })
}
