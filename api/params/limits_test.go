package params

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// uuids are of GPUs, in ascending order.
var uuids = []string{"GPU-00000000-0000-5000-8000-000000000000", "GPU-11111111-0000-5000-8000-000000000000", "GPU-22222222-0000-5000-8000-000000000000"}

// limits returns parameters of NVIDIA's kind with these fields of mpsConfig.
func limits(kind, fields string) string {
	return nvidia(kind, `,"sharing":{"strategy":"MPS","mpsConfig":{`+fields+`}}`)
}

// whole and slice return devices of the request.
func whole(request string, number int) Device {
	return Device{Request: request, Shape: gpu.Whole, UUID: uuids[number]}
}
func slice(request string) Device { return Device{Request: request, Shape: gpu.MIG} }

// TestLimitsByDevice checks the memory limits of the devices of a claim, with the cases of NVIDIA's driver (its TestMpsPerDevicePinnedMemoryLimitNormalize) and
// those of several devices.
func TestLimitsByDevice(t *testing.T) {
	t.Parallel()
	const mi, gi = 1 << 20, 1 << 30
	gpus := func(fields string) []resourceapi.DeviceAllocationConfiguration {
		return []resourceapi.DeviceAllocationConfiguration{fromClaim(limits("GpuConfig", fields))}
	}
	slices := func(fields string) []resourceapi.DeviceAllocationConfiguration {
		return []resourceapi.DeviceAllocationConfiguration{fromClaim(limits("MigDeviceConfig", fields))}
	}
	const byPosition0, byPosition1 = `"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi"}`, `"defaultPerDevicePinnedMemoryLimit":{"1":"1Gi"}`
	byUUID := func(number int) string {
		return `"defaultPerDevicePinnedMemoryLimit":{"` + uuids[number] + `":"1Gi"}`
	}
	const at = "GpuConfig: sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"
	tests := map[string]struct {
		configs []resourceapi.DeviceAllocationConfiguration
		devices []Device
		want    []int64
		// refused is part of the error; empty for none.
		refused string
	}{
		"no devices":                           {nil, nil, nil, ""},
		"no devices of the entry's kind":       {gpus(byPosition0), []Device{slice("a")}, []int64{0}, ""},
		"the default":                          {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi"`), []Device{whole("a", 0)}, []int64{2 * gi}, ""},
		"position over the default":            {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byPosition0), []Device{whole("a", 0)}, []int64{gi}, ""},
		"UUID over the default":                {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byUUID(0)), []Device{whole("a", 0)}, []int64{gi}, ""},
		"another GPU's UUID":                   {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byUUID(1)), []Device{whole("a", 0)}, nil, `claim config 0: ` + at + `[` + uuids[1] + `]: Invalid value: "` + uuids[1] + `": no device with this position or UUID: devices of this claim that the entry applies to: 1,`},
		"a position too high":                  {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byPosition1), []Device{whole("a", 0)}, nil, `claim config 0: ` + at + `[1]: Invalid value: "1": no device with this position or UUID: devices of this claim that the entry applies to: 1,`},
		"too little by default":                {gpus(`"defaultPinnedDeviceMemoryLimit":"1M"`), []Device{whole("a", 0)}, nil, `defaultPinnedDeviceMemoryLimit: Invalid value: "1M"`},
		"too little for one":                   {gpus(`"defaultPerDevicePinnedMemoryLimit":{"0":"1M"}`), []Device{whole("a", 0)}, nil, at + `[0]: Invalid value: "1M"`},
		"mebibytes":                            {gpus(`"defaultPinnedDeviceMemoryLimit":"10Mi"`), []Device{whole("a", 0)}, []int64{10 * mi}, ""},
		"megabytes":                            {gpus(`"defaultPinnedDeviceMemoryLimit":"10M"`), []Device{whole("a", 0)}, []int64{10_000_000}, ""},
		"one without a limit":                  {gpus(byPosition1), []Device{whole("a", 0), whole("a", 1)}, []int64{0, gi}, ""},
		"the order of the UUIDs":               {gpus(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byPosition0), []Device{whole("a", 2), whole("b", 1)}, []int64{2 * gi, gi}, ""},
		"both kinds of keys":                   {gpus(`"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi","` + uuids[1] + `":"3Gi"}`), []Device{whole("a", 1), whole("a", 0)}, []int64{3 * gi, gi}, ""},
		"two keys of one GPU":                  {gpus(`"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi","` + uuids[0] + `":"3Gi"}`), []Device{whole("a", 0)}, nil, at + `[` + uuids[0] + `]: Invalid value: "` + uuids[0] + `": the key 0 is the same GPU: remove one of them`},
		"a GPU that is also monitored":         {gpus(byPosition1), []Device{whole("a", 0), whole("b", 0), whole("c", 1)}, []int64{0, 0, gi}, ""},
		"an unknown UUID of a GPU":             {gpus(byPosition0), []Device{{Request: "a", Shape: gpu.Whole}}, nil, `the UUID of the GPU of request "a" is unknown`},
		"MIG devices do not count":             {gpus(byPosition0), []Device{slice("a"), whole("b", 1)}, []int64{0, gi}, ""},
		"MIG devices, as allocated":            {slices(`"defaultPinnedDeviceMemoryLimit":"2Gi",` + byPosition1), []Device{slice("b"), whole("c", 0), slice("a")}, []int64{2 * gi, 0, gi}, ""},
		"a MIG device too high":                {slices(byPosition1), []Device{slice("a")}, nil, `claim config 0: MigDeviceConfig: sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[1]`},
		"the UUID of a MIG device":             {slices(byUUID(0)), []Device{slice("a")}, nil, "a MIG device has no UUID before it is prepared"},
		"an entry of one request":              {[]resourceapi.DeviceAllocationConfiguration{fromClaim(limits("GpuConfig", byPosition0), "b")}, []Device{whole("a", 0), whole("b", 1)}, []int64{0, gi}, ""},
		"another request's GPU by UUID":        {[]resourceapi.DeviceAllocationConfiguration{fromClaim(limits("GpuConfig", byUUID(0)), "b")}, []Device{whole("a", 0), whole("b", 1)}, nil, "no device with this position or UUID: devices of this claim that the entry applies to: 1,"},
		"two entries, each from 0":             {[]resourceapi.DeviceAllocationConfiguration{fromClaim(limits("GpuConfig", byPosition0), "a"), fromClaim(limits("GpuConfig", `"defaultPerDevicePinnedMemoryLimit":{"0":"3Gi"}`), "b")}, []Device{whole("a", 0), whole("b", 1)}, []int64{gi, 3 * gi}, ""},
		"a later entry replaces it":            {append(gpus(byPosition1), fromClaim(limits("GpuConfig", `"defaultPinnedDeviceMemoryLimit":"3Gi"`))), []Device{whole("a", 0)}, []int64{3 * gi}, ""},
		"a later entry of one request":         {append(gpus(byPosition0), fromClaim(limits("GpuConfig", ""), "a")), []Device{whole("a", 0), whole("b", 1)}, []int64{0, gi}, ""},
		"a later entry of ours without MPS":    {append(gpus(byPosition0), fromClaim(of("GPUConfig", `,"timeSlicing":{}`))), []Device{whole("a", 0)}, []int64{gi}, ""},
		"a later entry of ours with MPS":       {append(gpus(byPosition0), fromClaim(of("GPUConfig", `,"mps":{}`))), []Device{whole("a", 0)}, []int64{0}, ""},
		"the claim replaces the class":         {append(gpus(byPosition0), fromClass(limits("GpuConfig", byPosition1))), []Device{whole("a", 0)}, []int64{gi}, ""},
		"the class":                            {[]resourceapi.DeviceAllocationConfiguration{fromClass(limits("GpuConfig", byPosition1))}, []Device{whole("a", 0)}, nil, "DeviceClass config 0: GpuConfig: sharing.mpsConfig"},
		"no limits by device":                  {gpus(`"defaultPerDevicePinnedMemoryLimit":{}`), []Device{{Request: "a", Shape: gpu.Whole}}, []int64{0}, ""},
		"a later entry with no sharing at all": {append(gpus(byPosition1), fromClaim(nvidia("GpuConfig", ""))), []Device{whole("a", 0)}, []int64{0}, ""},
	}
	for name, test := range tests {
		for i := range test.configs {
			test.configs[i].Opaque.Driver = nvidiaDriver
		}
		got, err := Resolve(test.configs, nvidiaDriver, test.devices)
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: %+v, %v, want %q", name, got, err, test.refused)
			}
			continue
		}
		var bytes []int64
		for _, s := range got {
			bytes = append(bytes, s.MPS.PinnedMemoryBytes)
			valid(t, s)
		}
		if diff := cmp.Diff(test.want, bytes); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestCheckIgnoresPositions checks that a check without an allocation does not refuse a position: the claim can get more devices.
func TestCheckIgnoresPositions(t *testing.T) {
	t.Parallel()
	entry := fromClaim(limits("GpuConfig", `"defaultPerDevicePinnedMemoryLimit":{"3":"1Gi","`+uuids[0]+`":"1Gi"}`))
	entry.Opaque.Driver = nvidiaDriver
	if err := Check([]resourceapi.DeviceAllocationConfiguration{entry}, nvidiaDriver, "a", gpu.Whole); err != nil {
		t.Error(err)
	}
}
