package requirements

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
	asked, ok := a.capacity[name]
	if !ok && c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
		n, err := number(*c.RequestPolicy.Default)
		return n, true, err
	}
	if !ok {
		asked = c.Value
	}
	n, err := number(asked)
	if err != nil || c.RequestPolicy == nil {
		return n, true, err
	}
	p, err := readPolicy(c.RequestPolicy)
	if err != nil {
		return n, false, err
	}
	if ok {
		n = p.round(n)
	}
	return n, p.allows(n), nil
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
