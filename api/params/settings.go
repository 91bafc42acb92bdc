package params

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Settings are the parameters of one device after precedence, defaults and validation. The zero value changes nothing. Settings
// are comparable.
type Settings struct {
	// TimeSlice is the text of an Interval; empty keeps the time slice of the GPU.
	TimeSlice string
	// MPS are the limits of the claim's MPS daemon.
	MPS MPSSettings
	// MemoryLimitBytes is the most to which the memory limit of a share's containers can be raised; 0 means the memory that the claim requests.
	MemoryLimitBytes int64
	// Extras are device nodes that the containers get in addition to those of the device.
	Extras Extras
}

// MPSSettings are the limits of the MPS daemon of a claim.
type MPSSettings struct {
	// Private requests a daemon for this claim only. Without it all other fields are zero.
	Private bool
	// ActiveThreadPercentage is 1 to 100 percent; 0 means no limit.
	ActiveThreadPercentage int
	// PinnedMemoryBytes is the limit of each client in bytes; 0 means no limit.
	PinnedMemoryBytes int64
}

// Memory is an amount of memory in bytes.
type Memory int64

// UnmarshalJSON decodes a text such as 4Gi, or a whole number of bytes. A value that Kind.validate rejects becomes 0.
func (m *Memory) UnmarshalJSON(raw []byte) error {
	var value any
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &value); err != nil {
		return err
	}
	n, _ := bytesOf(value)
	*m = Memory(n)
	return nil
}

func (c *GPUConfig) apply(s *Settings) {
	if c.TimeSlicing != nil {
		s.TimeSlice = string(c.TimeSlicing.Interval)
	}
	c.MPS.apply(s)
	if c.MemoryLimit != nil {
		s.MemoryLimitBytes = int64(*c.MemoryLimit)
	}
	s.extend(c.Devices)
}

func (c *MIGConfig) apply(s *Settings) {
	c.MPS.apply(s)
	s.extend(c.Devices)
}

// extend replaces the extras if the entry has the field.
func (s *Settings) extend(extras []Extra) {
	if extras != nil {
		s.Extras = ExtrasOf(extras...)
	}
}

// apply replaces the settings of the MPS daemon if m is not nil.
func (m *MPS) apply(s *Settings) {
	if m == nil {
		return
	}
	s.MPS = MPSSettings{Private: true}
	s.MPS.limit(m.ActiveThreadPercentage, m.PinnedMemoryLimit)
}

// limit sets the limits that are not nil.
func (s *MPSSettings) limit(percentage *int, memory *Memory) {
	if percentage != nil {
		s.ActiveThreadPercentage = *percentage
	}
	if memory != nil {
		s.PinnedMemoryBytes = int64(*memory)
	}
}

// refusals returns why a device of the shape cannot have what is requested.
func refusals(shape gpu.Shape, r requests) field.ErrorList {
	var errs field.ErrorList
	refuse := func(path *field.Path, reason string) {
		if path != nil {
			errs = append(errs, field.Forbidden(path, reason))
		}
	}
	switch shape {
	case gpu.MPS:
		refuse(r.timeSlice, "GPUs of type mps have no time slices: remove it, or request a device of type timeshare or gpu")
		refuse(r.mps, "a device of type mps uses the MPS daemon of its GPU: remove it, and limit the claim with capacity.requests of its request")
	case gpu.TimeShare:
		refuse(r.mps, "an MPS daemon for one claim requires the whole GPU, and other claims can share this one: request a GPU that one claim holds, or a device of type mps")
	case gpu.Whole:
		refuse(r.memoryLimit, "a whole GPU has no memory limit: remove it, or request a device of type timeshare or mps")
	case gpu.MIG, gpu.None, gpu.VFIO, gpu.Monitor:
	}
	return errs
}
