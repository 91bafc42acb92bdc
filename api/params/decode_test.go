package params

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// of returns the parameters of the kind with the fields, which start with a comma.
func of(kind, fields string) string {
	return `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"` + kind + `"` + fields + `}`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	gpuConfig := metav1.TypeMeta{APIVersion: APIVersion, Kind: GPUConfigKind}
	migConfig := metav1.TypeMeta{APIVersion: APIVersion, Kind: MIGConfigKind}
	tests := map[string]struct {
		raw  string
		want Config
	}{
		"nothing asked":           {of("GPUConfig", ""), &GPUConfig{TypeMeta: gpuConfig}},
		"nothing asked of a MIG":  {of("MIGConfig", ""), &MIGConfig{TypeMeta: migConfig}},
		"null parts":              {of("GPUConfig", `,"timeSlicing":null,"mps":null`), &GPUConfig{TypeMeta: gpuConfig}},
		"empty time slicing":      {of("GPUConfig", `,"timeSlicing":{}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Default}}},
		"null interval":           {of("GPUConfig", `,"timeSlicing":{"interval":null}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Default}}},
		"long time slices":        {of("GPUConfig", `,"timeSlicing":{"interval":"Long"}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Long}}},
		"empty MPS":               {of("MIGConfig", `,"mps":{}`), &MIGConfig{TypeMeta: migConfig, MPS: &MPS{}}},
		"MPS with limits":         {of("MIGConfig", `,"mps":{"activeThreadPercentage":50,"pinnedMemoryLimit":"4Gi"}`), &MIGConfig{TypeMeta: migConfig, MPS: &MPS{ActiveThreadPercentage: new(50), PinnedMemoryLimit: "4Gi"}}},
		"MPS limits at their end": {of("GPUConfig", `,"mps":{"activeThreadPercentage":100,"pinnedMemoryLimit":"1048576"}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{ActiveThreadPercentage: new(100), PinnedMemoryLimit: "1048576"}}},
	}
	for name, test := range tests {
		got, err := Decode([]byte(test.raw))
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	types := `must be gpu.tessera.dev/v1alpha1 and one of GPUConfig, MIGConfig`
	tests := map[string]struct{ raw, want string }{
		"nothing":              {"", "unexpected end of JSON input"},
		"null":                 {"null", `apiVersion "", kind "": ` + types},
		"empty":                {"{}", `apiVersion "", kind "": ` + types},
		"a list":               {"[]", "cannot unmarshal array"},
		"cut off":              {`{"apiVersion":`, "unexpected end of JSON input"},
		"two objects":          {of("GPUConfig", "") + "{}", "invalid character '{' after top-level value"},
		"unknown kind":         {of("VGPUConfig", ""), `kind "VGPUConfig": ` + types},
		"kind of another case": {of("GpuConfig", ""), `kind "GpuConfig": ` + types},
		"another version":      {`{"apiVersion":"gpu.tessera.dev/v1","kind":"GPUConfig"}`, `apiVersion "gpu.tessera.dev/v1", kind "GPUConfig": ` + types},
		"unknown field":        {of("GPUConfig", `,"timeslicing":{}`), `GPUConfig: unknown field "timeslicing"`},
		"unknown nested field": {of("GPUConfig", `,"timeSlicing":{"intervall":"Long"}`), `GPUConfig: unknown field "timeSlicing.intervall"`},
		"repeated field":       {of("GPUConfig", `,"mps":{},"mps":{}`), `GPUConfig: duplicate field "mps"`},
		"field of the other":   {of("MIGConfig", `,"timeSlicing":{}`), `MIGConfig: unknown field "timeSlicing"`},
		"unknown interval":     {of("GPUConfig", `,"timeSlicing":{"interval":"long"}`), `timeSlicing.interval: Unsupported value: "long": supported values: "Default", "Short", "Medium", "Long"`},
		"interval of numbers":  {of("GPUConfig", `,"timeSlicing":{"interval":3}`), "timeSlicing.interval of type"},
		"list for an object":   {of("GPUConfig", `,"timeSlicing":[]`), "timeSlicing of type"},
		"no percent":           {of("GPUConfig", `,"mps":{"activeThreadPercentage":0}`), "mps.activeThreadPercentage: Invalid value: 0: must be between 1 and 100, inclusive"},
		"too many percent":     {of("MIGConfig", `,"mps":{"activeThreadPercentage":101}`), "mps.activeThreadPercentage: Invalid value: 101"},
		"half a percent":       {of("MIGConfig", `,"mps":{"activeThreadPercentage":0.5}`), "mps.activeThreadPercentage of type int"},
		"percent in words":     {of("MIGConfig", `,"mps":{"activeThreadPercentage":"50"}`), "mps.activeThreadPercentage of type int"},
		"memory as a number":   {of("MIGConfig", `,"mps":{"pinnedMemoryLimit":4096}`), "mps.pinnedMemoryLimit of type string"},
		"little memory":        {of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"1048575"}`), `mps.pinnedMemoryLimit: Invalid value: "1048575": must be a size of at least 1Mi, such as 512Mi or 4Gi`},
		"less than no memory":  {of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"-4Gi"}`), `mps.pinnedMemoryLimit: Invalid value: "-4Gi"`},
		"more than all memory": {of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"999999999999999Ti"}`), "mps.pinnedMemoryLimit: Invalid value"},
		"a minute of CPU":      {of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"1e-99999999"}`), `mps.pinnedMemoryLimit: Invalid value: "1e-99999999"`},
		"two things wrong":     {of("GPUConfig", `,"mps":{"activeThreadPercentage":0},"timeSlicing":{"interval":"No"}`), "[mps.activeThreadPercentage: Invalid value: 0: must be between 1 and 100, inclusive, timeSlicing.interval: Unsupported"},
	}
	for name, test := range tests {
		got, err := Decode([]byte(test.raw))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want %q", name, got, err, test.want)
		}
	}
}

// FuzzDecode checks that no input makes Decode panic, and that what it accepts has valid settings.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", "[]", `"x"`, "{\"apiVersion\":", "\x00", of("GPUConfig", ""), of("MIGConfig", ""), of("Pod", ""),
		of("GPUConfig", `,"timeSlicing":{}`), of("GPUConfig", `,"timeSlicing":null,"mps":{}`), of("GPUConfig", `,"timeSlicing":{"interval":"Short"}`),
		of("MIGConfig", `,"mps":{"activeThreadPercentage":50,"pinnedMemoryLimit":"4Gi"}`), of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"1e-99999999"}`),
		of("GPUConfig", `,"x":`+strings.Repeat("[", 5000)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := Decode(raw)
		if err != nil {
			return
		}
		var s Settings
		config.apply(&s)
		if s.TimeSlice != "" && Interval(s.TimeSlice).validate(nil) != nil {
			t.Errorf("interval %q", s.TimeSlice)
		}
		if p := s.MPS.ActiveThreadPercentage; p < 0 || p > 100 {
			t.Errorf("%d percent", p)
		}
		if n := s.MPS.PinnedMemoryBytes; n != 0 && n < leastPinned {
			t.Errorf("%d bytes", n)
		}
		if s.MPS != (MPSSettings{}) && !s.MPS.Private {
			t.Errorf("limits without a daemon: %+v", s.MPS)
		}
		if config.serves(gpu.Monitor) || config.serves(gpu.VFIO) || config.serves(gpu.None) {
			t.Errorf("%s serves a device without parameters", config.kind())
		}
	})
}
