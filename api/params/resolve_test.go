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

// fromClass and fromClaim return an entry as it stands in an allocation.
func fromClass(raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClass, Requests: requests, DeviceConfiguration: opaque(driver, raw)}
}

func fromClaim(raw string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{Source: resourceapi.AllocationConfigSourceClaim, Requests: requests, DeviceConfiguration: opaque(driver, raw)}
}

func opaque(driver, raw string) resourceapi.DeviceConfiguration {
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}}}
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
		"no entries":                          {nil, "a", gpu.Whole, ""},
		"nothing asked":                       {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""))}, "a", gpu.Whole, ""},
		"nothing asked of a shared GPU":       {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", ""), "a")}, "a", gpu.TimeShare, ""},
		"another driver's, whatever it says":  {[]resourceapi.DeviceAllocationConfiguration{foreign}, "a", gpu.Whole, ""},
		"no opaque part":                      {[]resourceapi.DeviceAllocationConfiguration{empty}, "a", gpu.Whole, ""},
		"another request's, whatever it says": {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "b")}, "a", gpu.Whole, ""},
		"a sibling alternative's":             {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a/large")}, "a/small", gpu.MIG, ""},
		"a request that only starts alike":    {[]resourceapi.DeviceAllocationConfiguration{fromClaim(broken, "a")}, "ab", gpu.MIG, ""},

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

		"time slicing":               {[]resourceapi.DeviceAllocationConfiguration{fromClaim(sliced)}, "a", gpu.Whole, `parameters of request "a": timeSlicing: Forbidden: not offered by this version of Tessera`},
		"time slicing of the class":  {[]resourceapi.DeviceAllocationConfiguration{fromClass(sliced)}, "a", gpu.Whole, "timeSlicing: Forbidden"},
		"MPS":                        {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"mps":{}`))}, "a", gpu.Whole, "mps: Forbidden: not offered"},
		"MPS on a slice":             {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("MIGConfig", `,"mps":{"activeThreadPercentage":50}`), "a")}, "a", gpu.MIG, "mps: Forbidden: not offered"},
		"wrong before not offered":   {[]resourceapi.DeviceAllocationConfiguration{fromClaim(of("GPUConfig", `,"timeSlicing":{"interval":"x"}`))}, "a", gpu.Whole, "supported values"},
		"asked of the other devices": {[]resourceapi.DeviceAllocationConfiguration{fromClaim(sliced)}, "a", gpu.MIG, ""},
	}
	for name, test := range tests {
		got, err := Resolve(test.configs, driver, test.request, test.shape)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case got != (Settings{}):
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPrecedence checks the merge itself, on settings that Resolve does not hand out yet.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	interval := func(i Interval) string { return of("GPUConfig", `,"timeSlicing":{"interval":"`+string(i)+`"}`) }
	tests := map[string]struct {
		entries []string
		want    Settings
	}{
		"nothing":           {nil, Settings{}},
		"the later wins":    {[]string{interval(Short), interval(Long)}, Settings{TimeSlice: "Long"}},
		"what is left out":  {[]string{interval(Short), of("GPUConfig", "")}, Settings{TimeSlice: "Short"}},
		"part by part":      {[]string{interval(Short), of("GPUConfig", `,"mps":{"activeThreadPercentage":20}`)}, Settings{TimeSlice: "Short", MPS: MPSSettings{Private: true, ActiveThreadPercentage: 20}}},
		"a part as a whole": {[]string{of("GPUConfig", `,"mps":{"activeThreadPercentage":20}`), of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"2Gi"}`)}, Settings{MPS: MPSSettings{Private: true, PinnedMemoryBytes: 2 << 30}}},
		"the default":       {[]string{of("GPUConfig", `,"timeSlicing":{}`)}, Settings{TimeSlice: "Default"}},
	}
	for name, test := range tests {
		var got Settings
		for _, raw := range test.entries {
			if err := apply(&got, fromClaim(raw), "a", gpu.Whole); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestClassGoesFirst checks that the order in the allocation does not matter, by which of two wrong
// entries is named.
func TestClassGoesFirst(t *testing.T) {
	t.Parallel()
	configs := []resourceapi.DeviceAllocationConfiguration{fromClaim("{}"), fromClass("[]")}
	for range 2 {
		if _, err := Resolve(configs, driver, "a", gpu.Whole); err == nil || !strings.Contains(err.Error(), "DeviceClass config 0") {
			t.Errorf("%v, want the class's entry first", err)
		}
		slices.Reverse(configs)
	}
}

// TestConfigs checks that a claim's entry keeps the names of its requests, which the allocation loses.
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
	if _, err := Resolve(Configs(claim), driver, "a", gpu.MIG); err == nil {
		t.Error("GPU parameters for a named MIG request are accepted")
	}
}

// FuzzResolve checks that no combination of entries makes Resolve panic, and that in this version it
// never hands out settings that nobody honours.
func FuzzResolve(f *testing.F) {
	for _, raw := range []string{"", "null", "{}", of("GPUConfig", ""), of("MIGConfig", `,"mps":{}`), of("GPUConfig", `,"timeSlicing":{}`)} {
		for shape := gpu.None; shape <= gpu.Monitor; shape++ {
			f.Add([]byte(raw), []byte(of("GPUConfig", "")), "a", "a/b", int(shape))
		}
	}
	f.Fuzz(func(t *testing.T, class, claim []byte, named, request string, shape int) {
		configs := []resourceapi.DeviceAllocationConfiguration{fromClass(string(class)), fromClaim(string(claim), named), {}}
		got, err := Resolve(configs, driver, request, gpu.Shape(shape))
		if got != (Settings{}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
