package expect

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// Fences are the taints of the published devices.
type Fences struct {
	// Devices are all that are published, by name.
	Devices map[string]gpu.Device
	// Whole is whether there is a pool, and every slice of its newest generation; until then devices may be missing.
	Whole  bool
	taints map[string][]resourceapi.DeviceTaint
}

// ReadFences reads the slices of one driver on one node.
func ReadFences(slices []resourceapi.ResourceSlice) Fences {
	f := Fences{Devices: map[string]gpu.Device{}, Whole: len(slices) > 0, taints: map[string][]resourceapi.DeviceTaint{}}
	for _, reading := range wire.Read(slices) {
		f.Whole = f.Whole && reading.Complete
		for _, g := range reading.GPUs {
			for _, d := range g.Devices {
				f.Devices[d.Name], f.taints[d.Name] = gpu.Device{GPU: g.Name, Use: d.Use}, d.Taints
			}
		}
	}
	return f
}

// Of returns the taint of the signal of each device that has it, as "value effect" or, without a value, "effect".
func (f Fences) Of(driver string, signal gpu.Signal) map[string]string {
	found := map[string]string{}
	for name := range f.taints {
		if taint, has := f.Find(name, driver, signal); has {
			found[name] = strings.TrimSpace(taint.Value + " " + string(taint.Effect))
		}
	}
	return found
}

// Find returns the taint of the signal of a device.
func (f Fences) Find(device, driver string, signal gpu.Signal) (resourceapi.DeviceTaint, bool) {
	for _, taint := range f.taints[device] {
		if taint.Key == wire.TaintKey(driver, signal) {
			return taint, true
		}
	}
	return resourceapi.DeviceTaint{}, false
}

// Count returns how many taints of the driver there are.
func (f Fences) Count(driver string) int {
	count := 0
	for _, taints := range f.taints {
		for _, taint := range taints {
			if strings.HasPrefix(taint.Key, driver+"/") {
				count++
			}
		}
	}
	return count
}

// Marked returns what Of must return: the mark that the function has for each device, but of monitors, which are never fenced.
func (f Fences) Marked(mark func(gpu.Device) string) map[string]string {
	want := map[string]string{}
	for name, d := range f.Devices {
		if m := mark(d); m != "" && d.Shape != gpu.Monitor {
			want[name] = m
		}
	}
	return want
}
