package params

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Configs returns the entries that apply to an allocated claim: those of the DeviceClasses from its
// allocation, those of the claim from its spec. The allocation has the claim's entries too, but its
// writer empties their requests where they name all of them, and so forgets that they were named.
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

// Resolve returns the settings of a device of the shape that was allocated for the request, which is
// named as in an allocation result: "request" or "request/subrequest". What a claim says goes before
// what its class says, a later entry before an earlier one, part by part. Entries for other drivers
// and other requests are not looked at.
//
// An entry that names no request, or the request of which the device's is an alternative, applies to
// the devices that its kind is for. A claim's entry that names exactly this request must be for its
// shape. An entry that asks for what its kind knows and the device's shape cannot do is an error,
// wherever it stands: better refused than silently without effect.
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

// apply adds one entry to the settings.
func apply(settings *Settings, entry resourceapi.DeviceAllocationConfiguration, request string, shape gpu.Shape) error {
	config, err := Decode(entry.Opaque.Driver, entry.Opaque.Parameters.Raw)
	if err != nil {
		return err
	}
	if config.serves(shape) {
		timeSlice, mps := config.wishes()
		if err := refusals(shape, timeSlice, mps).ToAggregate(); err != nil {
			return fmt.Errorf("%s on a device of type %v: %w", config.kind(), shape, err)
		}
		config.apply(settings)
		return nil
	}
	if entry.Source == resourceapi.AllocationConfigSourceClaim && slices.Contains(entry.Requests, request) {
		return fmt.Errorf("%s: is not for a device of type %v: remove the request from the entry's requests, or give it the right kind", config.kind(), shape)
	}
	return nil
}

// covers reports whether an entry with these requests is for the request.
func covers(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
