package params

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// perDeviceField is the field of NVIDIA's mpsConfig with memory limits by device.
const perDeviceField = "defaultPerDevicePinnedMemoryLimit"

// position is a device to which an entry applies.
type position struct {
	// uuid is that of a GPU; empty for a MIG device.
	uuid string
	// devices are indices of the devices: those of one GPU, which can be allocated several times (adminAccess), or one MIG device.
	devices []int
	// key is the key of the limit that was set for it; empty without one.
	key string
}

// positionsOf returns the devices with the indices by position. GPUs are in ascending order of their UUIDs, as in NVIDIA's driver, which is the order in
// which MPS daemons number them. MIG devices have no UUID before they are prepared, and keep their order.
func positionsOf(devices []Device, indices []int) ([]position, error) {
	var list []position
	for _, i := range indices {
		d := devices[i]
		if d.Shape != gpu.MIG && d.UUID == "" {
			return nil, fmt.Errorf("%s: the UUID of the GPU of request %q is unknown", perDeviceField, d.Request)
		}
		same := slices.IndexFunc(list, func(p position) bool { return d.Shape != gpu.MIG && p.uuid == d.UUID })
		switch {
		case d.Shape == gpu.MIG:
			list = append(list, position{devices: []int{i}})
		case same < 0:
			list = append(list, position{uuid: d.UUID, devices: []int{i}})
		default:
			list[same].devices = append(list[same].devices, i)
		}
	}
	slices.SortStableFunc(list, func(a, b position) int { return strings.Compare(a.uuid, b.uuid) })
	return list, nil
}

// limitDevices sets the memory limits by device of an entry on the settings of the devices with the indices, to which it applies.
func limitDevices(limits map[string]Memory, settings []Settings, devices []Device, indices []int) error {
	if len(limits) == 0 {
		return nil
	}
	positions, err := positionsOf(devices, indices)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		at := field.NewPath("sharing", "mpsConfig", perDeviceField).Key(key)
		number, err := strconv.Atoi(key)
		if err != nil {
			number = slices.IndexFunc(positions, func(p position) bool { return p.uuid == key })
		}
		if number < 0 || number >= len(positions) {
			return field.Invalid(at, key, fmt.Sprintf("no device with this position or UUID: devices of this claim that the entry applies to: %d, counted from 0", len(positions)))
		}
		p := &positions[number]
		if p.key != "" {
			return field.Invalid(at, key, fmt.Sprintf("the key %s is the same GPU: remove one of them", p.key))
		}
		p.key = key
		for _, i := range p.devices {
			settings[i].MPS.PinnedMemoryBytes = int64(limits[key])
		}
	}
	return nil
}
