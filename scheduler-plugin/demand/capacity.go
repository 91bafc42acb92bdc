package demand

import (
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// fits reports whether the device, holding nothing, has what the alternative takes of its capacities.
func (a *alternative) fits(d *resourceapi.Device) (bool, error) {
	for name := range a.capacity {
		if _, ok := d.Capacity[name]; !ok {
			return false, nil
		}
	}
	if len(a.capacity) == 0 && !shared(d) {
		// Nothing is asked for and everything given.
		return true, nil
	}
	fits := true
	for name, c := range d.Capacity {
		taken, allowed, err := a.takes(name, c)
		if err != nil {
			return false, fmt.Errorf("capacity %s: %w", name, err)
		}
		total, err := number(c.Value)
		if err != nil {
			return false, fmt.Errorf("capacity %s: %w", name, err)
		}
		fits = fits && allowed && taken <= total
	}
	return fits, nil
}

func shared(d *resourceapi.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// share returns what the alternative takes of a shared device.
func (a *alternative) share(d *resourceapi.Device, driver string) (gpu.Share, error) {
	var share gpu.Share
	for name, c := range d.Capacity {
		taken, _, err := a.takes(name, c)
		if err != nil {
			return gpu.Share{}, fmt.Errorf("capacity %s: %w", name, err)
		}
		switch strings.TrimPrefix(string(name), driver+"/") {
		case string(wire.Memory):
			share.MemoryBytes = uint64(taken)
		case string(wire.Shares):
			share.Shares = int(taken)
		case string(wire.Compute):
			share.Compute = int(taken)
		default:
			return gpu.Share{}, fmt.Errorf("capacity %s of a shared device is not known", name)
		}
	}
	if len(d.Capacity) > 0 {
		share.Shares = max(1, share.Shares)
	}
	return share, nil
}

// takes returns how much of the capacity the alternative takes: what it asks for, rounded up to what the
// policy allows, or the default, or all of it; and whether the policy allows it. Only whole numbers are
// decided here: a feature decides what becomes of fractions.
func (a *alternative) takes(name resourceapi.QualifiedName, c resourceapi.DeviceCapacity) (int64, bool, error) {
	p := c.RequestPolicy
	asked, ok := a.capacity[name]
	switch {
	case !ok && p != nil && p.Default != nil:
		n, err := number(*p.Default)
		return n, true, err
	case !ok:
		asked = c.Value
	}
	n, err := number(asked)
	if err != nil || p == nil {
		return n, true, err
	}
	if p.ValidRange != nil {
		return within(n, p.ValidRange, ok)
	}
	if len(p.ValidValues) > 0 {
		return among(n, p.ValidValues, ok)
	}
	return n, true, nil
}

// within returns the number rounded up to the range when it may be, and whether it is in it then.
func within(n int64, r *resourceapi.CapacityRequestPolicyRange, round bool) (int64, bool, error) {
	var least, step int64
	var err error
	if r.Min == nil {
		return n, false, fmt.Errorf("a range without a least value")
	}
	if least, err = number(*r.Min); err != nil {
		return n, false, err
	}
	if r.Step != nil {
		if step, err = number(*r.Step); err != nil || step == 0 {
			return n, false, fmt.Errorf("a step of %s: %w", r.Step, errFraction)
		}
	}
	if round && n < least {
		n = least
	}
	if over := n - least; round && step > 0 && over%step != 0 {
		n += step - over%step
	}
	if r.Max != nil {
		most, err := number(*r.Max)
		if err != nil || n > most {
			return n, false, err
		}
	}
	return n, step == 0 || (n-least)%step == 0, nil
}

// among returns the least of the values that is no less than the number when it may be rounded, and
// whether it is one of them then.
func among(n int64, values []resource.Quantity, round bool) (int64, bool, error) {
	for _, q := range values {
		v, err := number(q)
		if err != nil {
			return n, false, err
		}
		if v == n || round && v > n {
			return v, true, nil
		}
	}
	return n, false, nil
}

var errFraction = errors.New("must be a whole number of a usual size")

// number returns the quantity as a number that can be reckoned with in thousandths, as the allocator may.
func number(q resource.Quantity) (int64, error) {
	n, ok := q.AsInt64()
	if !ok || n < 0 || n > 1<<53 {
		return 0, fmt.Errorf("%s: %w", q.String(), errFraction)
	}
	return n, nil
}
