package params

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const driver = "gpu.tessera.dev"

// fromClass and fromClaim return an entry as an allocation has it.
func fromClass(raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClass, Requests: requests, DeviceConfiguration: opaque(driver, raw)}
}

func fromClaim(raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim, Requests: requests, DeviceConfiguration: opaque(driver, raw)}
}

func opaque(driver, raw string) resourceapi.DeviceConfiguration {
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}}}
}

// resolveOne returns the settings of the only device of a claim.
func resolveOne(configs []resourceapi.DeviceAllocationConfiguration, driver, request string, shape gpu.Shape) (Settings, error) {
	d := Device{Request: request, Shape: shape}
	if shape != gpu.MIG {
		d.UUID = uuids[0]
	}
	settings, err := Resolve(configs, driver, []Device{d})
	if err != nil {
		return Settings{}, err
	}
	return settings[0], nil
}

func TestResolve(t *testing.T) {
	t.Parallel()
	foreign := fromClaim(`{"kind":"Anything"`)
	foreign.Opaque.Driver = "dra.example.com"
	empty := fromClaim("")
	empty.Opaque = nil
	broken := "{"
	sliced := of("GPUConfig", `,"timeSlicing":{"interval":"Long"}`)
	tests := map[string]struct {
		configs []resourceapi.DeviceAllocationConfiguration
		request string
		shape   gpu.Shape
		// want is part of the error; empty for none.
		want string
	}{
		"no entries":                       {nil, "a", gpu.Whole, ""},
		"no fields":                        {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""))}, "a", gpu.Whole, ""},
		"no fields, shared GPU":            {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a", gpu.TimeShare, ""},
		"another driver's, not decoded":    {[]resourceapi.DeviceAllocationConfiguration{foreign}, "a", gpu.Whole, ""},
		"no opaque part":                   {[]resourceapi.DeviceAllocationConfiguration{empty}, "a", gpu.Whole, ""},
		"another request's, not decoded":   {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "b")}, "a", gpu.Whole, ""},
		"a sibling alternative's":          {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a/large")}, "a/small", gpu.MIG, ""},
		"a request that only starts alike": {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a")}, "ab", gpu.MIG, ""},

		"broken, for all":             {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken)}, "a", gpu.Whole, `claim config 0 for request "a": unexpected end`},
		"broken, for this":            {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "b", "a")}, "a", gpu.Whole, `claim config 0 for request "a"`},
		"broken, for the alternative": {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a/small")}, "a/small", gpu.MIG, `claim config 0 for request "a/small"`},
		"broken, for alternatives":    {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a")}, "a/small", gpu.MIG, `claim config 0 for request "a/small"`},
		"broken in the class":         {[]resourceapi.DeviceAllocationConfiguration{fromClass(of("GPUConfig", "")), fromClass(broken, "a")}, "a", gpu.Whole, `DeviceClass config 1 for request "a"`},
		"the second of the claim":     {[]resourceapi.DeviceAllocationConfiguration{fromClass(of("GPUConfig", "")), fromClaim(of("GPUConfig", "")), fromClaim("{}")}, "a", gpu.Whole, `claim config 1 for request "a": apiVersion ""`},

		"GPU parameters for a named slice":       {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a", gpu.MIG, `claim config 0 for request "a": GPUConfig: is not for a device of type mig`},
		"MIG parameters for a named GPU":         {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("MIGConfig", ""), "a")}, "a", gpu.Whole, `MIGConfig: is not for a device of type gpu`},
		"parameters for a named monitor":         {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a", gpu.Monitor, `not for a device of type monitor`},
		"GPU parameters for the named choice":    {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a/small")}, "a/small", gpu.MIG, `not for a device of type mig`},
		"GPU parameters for all, on a slice":     {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""))}, "a", gpu.MIG, ""},
		"GPU parameters for all choices":         {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a/small", gpu.MIG, ""},
		"GPU parameters of the class of a slice": {[]resourceapi.DeviceAllocationConfiguration{fromClass(sliced, "a")}, "a", gpu.MIG, ""},

		"time slicing under MPS":          {[]resourceapi.DeviceAllocationConfiguration{fromClaim(sliced, "a")}, "a", gpu.MPS, `claim config 0 for request "a": GPUConfig on a device of type mps: timeSlicing: Forbidden: GPUs of type mps have no time slices`},
		"time slicing under MPS, for all": {[]resourceapi.DeviceAllocationConfiguration{fromClaim(sliced)}, "a", gpu.MPS, "timeSlicing: Forbidden"},
		"time slicing of an MPS class":    {[]resourceapi.DeviceAllocationConfiguration{fromClass(sliced)}, "a", gpu.MPS, `DeviceClass config 0 for request "a": GPUConfig on a device of type mps: timeSlicing`},
		"own MPS under the GPU's":         {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"mps":{}`))}, "a", gpu.MPS, "mps: Forbidden: a device of type mps uses the MPS daemon of its GPU"},
		"both under MPS":                  {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"mps":{},"timeSlicing":{}`))}, "a", gpu.MPS, "[timeSlicing: Forbidden"},
		"a memory limit of a whole GPU":   {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"memoryLimit":"4Gi"`))}, "a", gpu.Whole, "memoryLimit: Forbidden: a whole GPU has no memory limit"},
		"MPS of a time-shared GPU":        {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"mps":{}`))}, "a", gpu.TimeShare, "mps: Forbidden: an MPS daemon for one claim requires the whole GPU"},
		"no fields, under MPS":            {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a", gpu.MPS, ""},
		"for the other devices":           {[]resourceapi.DeviceAllocationConfiguration{fromClaim(sliced)}, "a", gpu.MIG, ""},
		"MIG parameters under MPS":        {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("MIGConfig", `,"mps":{}`))}, "a", gpu.MPS, ""},
	}
	for name, test := range tests {
		got, err := resolveOne(test.configs, driver, test.request, test.shape)
		if checked := Check(test.configs, driver, test.request, test.shape); (checked == nil) != (err == nil) {
			t.Errorf("%s: Check: %v", name, checked)
		}
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case got != (Settings{}):
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPrecedence checks the settings that result from several entries.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	interval := func(i Interval) string { return of("GPUConfig", `,"timeSlicing":{"interval":"`+string(i)+`"}`) }
	sharing := func(text string) string { return nvidia("GpuConfig", `,"sharing":{"strategy":`+text+`}`) }
	private := func(s MPSSettings) MPSSettings { s.Private = true; return s }
	tests := map[string]struct {
		class, claim []string
		shape        gpu.Shape
		want         Settings
	}{
		"nothing":             {nil, nil, gpu.Whole, Settings{}},
		"the default":         {nil, []string{of("GPUConfig", `,"timeSlicing":{}`)}, gpu.Whole, Settings{TimeSlice: "Default"}},
		"the claim wins":      {[]string{interval(Short)}, []string{interval(Long)}, gpu.Whole, Settings{TimeSlice: "Long"}},
		"the later wins":      {nil, []string{interval(Short), interval(Medium)}, gpu.TimeShare, Settings{TimeSlice: "Medium"}},
		"absent fields":       {[]string{interval(Short)}, []string{of("GPUConfig", "")}, gpu.Whole, Settings{TimeSlice: "Short"}},
		"part by part":        {[]string{interval(Short)}, []string{of("GPUConfig", `,"mps":{"activeThreadPercentage":20}`)}, gpu.Whole, Settings{TimeSlice: "Short", MPS: private(MPSSettings{ActiveThreadPercentage: 20})}},
		"a part as a whole":   {[]string{of("GPUConfig", `,"mps":{"activeThreadPercentage":20}`)}, []string{of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"2Gi"}`)}, gpu.Whole, Settings{MPS: private(MPSSettings{PinnedMemoryBytes: 2 << 30})}},
		"each kind its shape": {[]string{interval(Short)}, []string{of("MIGConfig", `,"mps":{}`)}, gpu.MIG, Settings{MPS: private(MPSSettings{})}},
		"NVIDIA's as a whole": {[]string{sharing(`"MPS"`)}, []string{sharing(`"TimeSlicing"`)}, gpu.Whole, Settings{TimeSlice: "Default"}},
		"NVIDIA's, set back":  {[]string{sharing(`"MPS"`)}, []string{nvidia("GpuConfig", "")}, gpu.Whole, Settings{}},
		"ours over NVIDIA's":  {[]string{sharing(`"MPS"`)}, []string{interval(Long)}, gpu.Whole, Settings{TimeSlice: "Long", MPS: private(MPSSettings{})}},
		"NVIDIA's on a slice": {nil, []string{sharing(`"TimeSlicing"`), nvidia("MigDeviceConfig", `,"sharing":{"strategy":"TimeSlicing"}`)}, gpu.MIG, Settings{}},
	}
	for name, test := range tests {
		var configs []resourceapi.DeviceAllocationConfiguration
		for _, raw := range test.claim {
			configs = append(configs, fromClaim(raw))
		}
		for _, raw := range test.class {
			configs = append(configs, fromClass(raw, "a"))
		}
		for i := range configs {
			configs[i].Opaque.Driver = nvidiaDriver
		}
		got, err := resolveOne(configs, nvidiaDriver, "a", test.shape)
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestClassGoesFirst checks that entries of the class are applied first, whatever their order in the allocation: of two invalid
// entries, the error names the one of the class.
func TestClassGoesFirst(t *testing.T) {
	t.Parallel()
	configs := []resourceapi.DeviceAllocationConfiguration{fromClaim("{}"), fromClass("[]")}
	for range 2 {
		if _, err := resolveOne(configs, driver, "a", gpu.Whole); err == nil || !strings.Contains(err.Error(), "DeviceClass config 0") {
			t.Errorf("%v, want the class's entry first", err)
		}
		slices.Reverse(configs)
	}
}

// TestConfigs checks that a claim's entry keeps the names of its requests, which the allocation can lose.
func TestConfigs(t *testing.T) {
	t.Parallel()
	raw := of("GPUConfig", "")
	claim := &resourceapi.ResourceClaim{
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Config: []resourceapi.DeviceClaimConfiguration{{Requests: []string{"a"}, DeviceConfiguration: opaque(driver, raw)}},
		}},
	}
	want := []resourceapi.DeviceAllocationConfiguration{fromClaim(raw, "a")}
	if diff := cmp.Diff(want, Configs(claim)); diff != "" {
		t.Errorf("not allocated (-want +got):\n%s", diff)
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Config: []resourceapi.DeviceAllocationConfiguration{fromClass(raw), fromClaim(raw)},
	}}
	want = []resourceapi.DeviceAllocationConfiguration{fromClass(raw), fromClaim(raw, "a")}
	if diff := cmp.Diff(want, Configs(claim)); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
	if _, err := resolveOne(Configs(claim), driver, "a", gpu.MIG); err == nil {
		t.Error("GPU parameters for a named MIG request are accepted")
	}
}

// FuzzResolve checks that no combination of entries makes Resolve panic, and that the settings fit the shape.
func FuzzResolve(f *testing.F) {
	for _, raw := range []string{
		"", "null", "{}", of("GPUConfig", ""), of("MIGConfig", `,"mps":{}`), of("GPUConfig", `,"timeSlicing":{}`), of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"4Gi"}`),
		nvidia("GpuConfig", `,"sharing":{"strategy":"MPS"}`), nvidia("MigDeviceConfig", `,"sharing":{"strategy":"TimeSlicing"}`),
	} {
		for shape := gpu.None; shape <= gpu.Monitor; shape++ {
			f.Add([]byte(raw), []byte(of("GPUConfig", "")), "a", "a/b", int(shape))
		}
	}
	f.Fuzz(func(t *testing.T, class, claim []byte, named, request string, number int) {
		configs := []resourceapi.DeviceAllocationConfiguration{fromClass(string(class)), fromClaim(string(claim), named), {}}
		for i := range configs {
			if configs[i].Opaque != nil {
				configs[i].Opaque.Driver = nvidiaDriver
			}
		}
		shape := gpu.Shape(number)
		got, err := resolveOne(configs, nvidiaDriver, request, shape)
		if err != nil && got != (Settings{}) {
			t.Errorf("%+v together with %v", got, err)
		}
		valid(t, got)
		if got.TimeSlice != "" && shape != gpu.Whole && shape != gpu.TimeShare {
			t.Errorf("time slices on a device of type %v", shape)
		}
		if got.MPS.Private && shape != gpu.Whole && shape != gpu.MIG {
			t.Errorf("a private daemon on a device of type %v", shape)
		}
	})
}

// TestResolveExtras checks that extras of a DeviceClass replace those of earlier entries, that an entry without the field keeps them, and that a
// claim cannot change them.
func TestResolveExtras(t *testing.T) {
	t.Parallel()
	both := fromClass(of("GPUConfig", `,"devices":["gds","rdma"]`))
	tests := map[string]struct {
		entry resourceapi.DeviceAllocationConfiguration
		want  Extras
	}{
		"not mentioned": {fromClaim(of("GPUConfig", `,"timeSlicing":{}`)), ExtrasOf(GDS, RDMA)},
		"null":          {fromClaim(of("GPUConfig", `,"devices":null`)), ExtrasOf(GDS, RDMA)},
		"others":        {fromClass(of("GPUConfig", `,"devices":["gdrcopy"]`)), ExtrasOf(GDRCopy)},
		"none":          {fromClass(of("GPUConfig", `,"devices":[]`)), 0},
		"of slices":     {fromClass(of("MIGConfig", `,"devices":["gdrcopy"]`)), ExtrasOf(GDS, RDMA)},
	}
	for name, test := range tests {
		settings, err := resolveOne([]resourceapi.DeviceAllocationConfiguration{both, test.entry}, driver, "a", gpu.Whole)
		if err != nil || settings.Extras != test.want {
			t.Errorf("%s: %v, %v, want %v", name, settings.Extras.List(), err, test.want.List())
		}
	}
	for _, claim := range []string{of("GPUConfig", `,"devices":["gdrcopy"]`), of("MIGConfig", `,"devices":["rdma"]`)} {
		settings, err := resolveOne([]resourceapi.DeviceAllocationConfiguration{both, fromClaim(claim)}, driver, "a", gpu.Whole)
		if err == nil || !strings.Contains(err.Error(), `claim config 0 for request "a"`) || settings != (Settings{}) {
			t.Errorf("%s: %v, %v, want a refusal", claim, settings.Extras.List(), err)
		}
	}
	if got := ExtrasOf(RDMA, "none", GDS, GDS).List(); !slices.Equal(got, []Extra{GDS, RDMA}) {
		t.Errorf("in another order: %v", got)
	}
}
