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

// capacityFits reports whether the device, if nothing of it is allocated, has the capacities that the alternative takes.
func (a *alternative) capacityFits(d *resourceapi.Device) (bool, error) {
	for name := range a.capacity {
		if _, ok := d.Capacity[name]; !ok {
			return false, nil
		}
	}
	if len(a.capacity) == 0 && !isShared(d) {
		// No capacity is requested, and the whole device is allocated.
		return true, nil
	}
	fits := true
	for name, c := range d.Capacity {
		taken, allowed, err := a.takenCapacity(name, c)
		if err != nil {
			return false, fmt.Errorf("capacity %s: %w", name, err)
		}
		total, err := wholeNumber(c.Value)
		if err != nil {
			return false, fmt.Errorf("capacity %s: %w", name, err)
		}
		fits = fits && allowed && taken <= total
	}
	return fits, nil
}

func isShared(d *resourceapi.Device) bool {
	return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
}

// shareOf returns what the alternative takes of a shared device.
func (a *alternative) shareOf(d *resourceapi.Device, driver string) (gpu.Share, error) {
	var share gpu.Share
	for name, c := range d.Capacity {
		taken, _, err := a.takenCapacity(name, c)
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

// takenCapacity returns how much of the capacity the alternative takes, and whether the request policy permits it: the
// requested amount, rounded up to what the policy permits, or else the default, or else all of it. Only whole numbers
// are supported: how fractions are rounded depends on a feature gate.
func (a *alternative) takenCapacity(name resourceapi.QualifiedName, c resourceapi.DeviceCapacity) (int64, bool, error) {
	requested, ok := a.capacity[name]
	if !ok && c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
		n, err := wholeNumber(*c.RequestPolicy.Default)
		return n, true, err
	}
	if !ok {
		requested = c.Value
	}
	n, err := wholeNumber(requested)
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

// wholeNumber returns the quantity as a number that can be multiplied by 1000 without overflow, as the allocator does.
func wholeNumber(q resource.Quantity) (int64, error) {
	n, ok := q.AsInt64()
	if !ok || n < 0 || n > 1<<53 {
		return 0, fmt.Errorf("%s: %w", q.String(), errFraction)
	}
	return n, nil
}
