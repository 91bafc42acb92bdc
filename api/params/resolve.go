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

// Resolve returns the settings of a device of the shape that was allocated for the request. request is as in an allocation
// result: "request" or "request/subrequest". Entries for other drivers and other requests are ignored.
//
// Precedence: entries of the claim override those of the DeviceClass, and later entries override earlier ones. Tessera's kinds
// override setting by setting, NVIDIA's kinds replace all settings.
//
// An entry applies to a device if it names no request, the device's request, or the request of which the device's is a
// subrequest. It is then decisive whether the entry's kind is for the shape:
//   - It is: the entry is applied. If it requests something that this shape cannot do, that is an error, since it would have no effect.
//   - It is not: the entry is ignored, because it can be for other devices. If an entry of the claim names exactly this request, that is an error.
//
// An error names the source and position of the entry, and its field.
func Resolve(configs []resourceapi.DeviceAllocationConfiguration, driver, request string, shape gpu.Shape) (Settings, error) {
	var settings Settings
	for _, from := range []struct {
		source resourceapi.AllocationConfigSource
		name   string
	}{
		{resourceapi.AllocationConfigSourceClass, "DeviceClass"},
		{resourceapi.AllocationConfigSourceClaim, "claim"},
	} {
		position := -1
		for _, entry := range configs {
			if entry.Source != from.source {
				continue
			}
			position++
			if entry.Opaque == nil || entry.Opaque.Driver != driver || !covers(entry.Requests, request) {
				continue
			}
			if err := apply(&settings, entry, request, shape); err != nil {
				return Settings{}, fmt.Errorf("%s config %d for request %q: %w", from.name, position, request, err)
			}
		}
	}
	return settings, nil
}

// apply applies one entry to the settings, or returns the error that Resolve describes.
func apply(settings *Settings, entry resourceapi.DeviceAllocationConfiguration, request string, shape gpu.Shape) error {
	config, err := Decode(entry.Opaque.Driver, entry.Source, entry.Opaque.Parameters.Raw)
	if err != nil {
		return err
	}
	if config.serves(shape) {
		timeSlice, mps := config.requestPaths()
		if err := refusals(shape, timeSlice, mps).ToAggregate(); err != nil {
			return fmt.Errorf("%s on a device of type %v: %w", config.kind(), shape, err)
		}
		config.apply(settings)
		return nil
	}
	if entry.Source == resourceapi.AllocationConfigSourceClaim && slices.Contains(entry.Requests, request) {
		return fmt.Errorf("%s: is not for a device of type %v: remove the request from the entry's requests, or correct the kind", config.kind(), shape)
	}
	return nil
}

// covers reports whether an entry with these request names applies to the request.
func covers(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
