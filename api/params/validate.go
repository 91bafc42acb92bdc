package params

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// leastPinned is the smallest limit that MPS can keep: it counts in megabytes.
const leastPinned = 1 << 20

// sizeText is what a size of memory may look like. It is checked before the text becomes a quantity:
// parsing a quantity with a large negative exponent takes a minute of CPU.
var sizeText = regexp.MustCompile(`^[1-9][0-9]{0,14}([KMGT]i?)?$`)

func (c *GPUConfig) validate() error {
	errs := c.MPS.validate(field.NewPath("mps"))
	if c.TimeSlicing != nil {
		errs = append(errs, c.TimeSlicing.Interval.validate(field.NewPath("timeSlicing", "interval"))...)
	}
	return errs.ToAggregate()
}

func (c *MIGConfig) validate() error {
	return c.MPS.validate(field.NewPath("mps")).ToAggregate()
}

func (i Interval) validate(at *field.Path) field.ErrorList {
	switch i {
	case Default, Short, Medium, Long:
		return nil
	}
	return field.ErrorList{field.NotSupported(at, i, []Interval{Default, Short, Medium, Long})}
}

func (m *MPS) validate(at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	if p := m.ActiveThreadPercentage; p != nil && (*p < 1 || *p > 100) {
		errs = append(errs, field.Invalid(at.Child("activeThreadPercentage"), *p, validation.InclusiveRangeError(1, 100)))
	}
	if n, ok := memorySize(m.PinnedMemoryLimit); !ok || n != 0 && n < leastPinned {
		errs = append(errs, field.Invalid(at.Child("pinnedMemoryLimit"), m.PinnedMemoryLimit, "must be a size of at least 1Mi, such as 512Mi or 4Gi"))
	}
	return errs
}

// memorySize returns the number of bytes that the text stands for; an empty text is 0. It is false
// for what is no size.
func memorySize(text string) (int64, bool) {
	if text == "" {
		return 0, true
	}
	if !sizeText.MatchString(text) {
		return 0, false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	return q.AsInt64()
}
