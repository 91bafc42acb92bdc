package params

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Configs returns the entries that apply to an allocated claim: those of the DeviceClasses from its allocation, those of the
// claim from its spec.
//
// The allocation also has the claim's entries. But if such an entry names all requests, the scheduler's allocator removes the
// names, and Resolve could no longer distinguish it from an entry that names none.
func Configs(claim *resourceapi.ResourceClaim) []resourceapi.DeviceAllocationConfiguration {
	var configs []resourceapi.DeviceAllocationConfiguration
	if allocation := claim.Status.Allocation; allocation != nil {
		for _, entry := range allocation.Devices.Config {
			if entry.Source == resourceapi.AllocationConfigSourceClass {
				configs = append(configs, entry)
			}
		}
	}
	for _, entry := range claim.Spec.Devices.Config {
		configs = append(configs, resourceapi.DeviceAllocationConfiguration{
			Source:              resourceapi.AllocationConfigSourceClaim,
			Requests:            entry.Requests,
			DeviceConfiguration: entry.DeviceConfiguration,
		})
	}
	return configs
}

// Device is an allocated device whose settings are resolved.
type Device struct {
	// Request is as in an allocation result: "request" or "request/subrequest".
	Request string
	Shape   gpu.Shape
	// UUID is that of the GPU. It identifies a GPU in limits by device; a MIG device has none before it is prepared.
	UUID string
}

// Resolve returns the settings of all devices of the driver that a claim holds, in their order, which is that of the allocation. Entries for other
// drivers and other requests are ignored.
//
// Precedence: entries of the claim override those of the DeviceClass, and later entries override earlier ones. Tessera's kinds
// override setting by setting, NVIDIA's kinds replace all settings.
//
// An entry applies to a device if it names no request, the device's request, or the request of which the device's is a
// subrequest. It is then decisive whether the entry's kind is for the shape:
//   - It is: the entry is applied. If it requests something that this shape cannot do, that is an error, since it would have no effect.
//   - It is not: the entry is ignored, because it can be for other devices. If an entry of the claim names exactly this request, that is an error.
//
// Limits by device count the devices for which the entry determines the MPS daemon, after precedence. A key that is none of them is an error.
//
// An error names the source and position of the entry, and its field.
func Resolve(configs []resourceapi.DeviceAllocationConfiguration, driver string, devices []Device) ([]Settings, error) {
	entries := entriesOf(configs, driver)
	settings := make([]Settings, len(devices))
	limited := map[*entry][]int{} // the devices of which the entry determines the MPS daemon
	for i, d := range devices {
		last, err := resolve(&settings[i], entries, d)
		if err != nil {
			return nil, err
		}
		limited[last] = append(limited[last], i)
	}
	for _, e := range entries {
		if len(limited[e]) == 0 {
			continue
		}
		limits, _ := e.config.perDevice()
		if err := limitDevices(limits, settings, devices, limited[e]); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", e.name, e.config.kind(), err)
		}
	}
	return settings, nil
}

// Check returns the error of Resolve for a device of the shape that would be allocated for the request, as far as it does not depend on which devices
// the claim holds.
func Check(configs []resourceapi.DeviceAllocationConfiguration, driver, request string, shape gpu.Shape) error {
	_, err := resolve(&Settings{}, entriesOf(configs, driver), Device{Request: request, Shape: shape})
	return err
}

// entry is an entry for the driver.
type entry struct {
	resourceapi.DeviceAllocationConfiguration
	// name is its source and position, for messages.
	name string
	// config is nil until the entry applies to a device.
	config Config
}

// entriesOf returns the entries for the driver in ascending precedence.
func entriesOf(configs []resourceapi.DeviceAllocationConfiguration, driver string) []*entry {
	var entries []*entry
	for _, from := range []struct {
		source resourceapi.AllocationConfigSource
		name   string
	}{
		{resourceapi.AllocationConfigSourceClass, "DeviceClass"},
		{resourceapi.AllocationConfigSourceClaim, "claim"},
	} {
		position := -1
		for _, config := range configs {
			if config.Source != from.source {
				continue
			}
			position++
			if config.Opaque != nil && config.Opaque.Driver == driver {
				entries = append(entries, &entry{DeviceAllocationConfiguration: config, name: fmt.Sprintf("%s config %d", from.name, position)})
			}
		}
	}
	return entries
}

// resolve applies the entries to the settings of the device. It returns the entry that determines its MPS daemon; nil without one.
func resolve(settings *Settings, entries []*entry, d Device) (*entry, error) {
	var last *entry
	for _, e := range entries {
		if !covers(e.Requests, d.Request) {
			continue
		}
		applied, err := e.apply(settings, d)
		if err != nil {
			return nil, fmt.Errorf("%s for request %q: %w", e.name, d.Request, err)
		}
		if !applied {
			continue
		}
		if _, replaced := e.config.perDevice(); replaced {
			last = e
		}
	}
	return last, nil
}

// apply applies the entry to the settings of a device that it covers, or returns the error that Resolve describes. It is false if the entry is not for
// the device.
func (e *entry) apply(settings *Settings, d Device) (bool, error) {
	if e.config == nil {
		config, err := Decode(e.Opaque.Driver, e.Source, e.Opaque.Parameters.Raw)
		if err != nil {
			return false, err
		}
		e.config = config
	}
	if e.config.serves(d.Shape) {
		if err := refusals(d.Shape, e.config.requests()).ToAggregate(); err != nil {
			return false, fmt.Errorf("%s on a device of type %v: %w", e.config.kind(), d.Shape, err)
		}
		e.config.apply(settings)
		return true, nil
	}
	if e.Source == resourceapi.AllocationConfigSourceClaim && slices.Contains(e.Requests, d.Request) {
		return false, fmt.Errorf("%s: is not for a device of type %v: remove the request from the entry's requests, or correct the kind", e.config.kind(), d.Shape)
	}
	return false, nil
}

// covers reports whether an entry with these request names applies to the request.
func covers(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
