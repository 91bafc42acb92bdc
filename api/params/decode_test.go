package params

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// of returns parameters of the kind with the fields, which begin with a comma.
func of(kind, fields string) string {
	return `{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"` + kind + `"` + fields + `}`
}

// nvidia returns parameters of NVIDIA's kind with the fields, which begin with a comma.
func nvidia(kind, fields string) string {
	return `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"` + kind + `"` + fields + `}`
}

const (
	nvidiaDriver = "gpu.nvidia.com"
	class        = resourceapi.AllocationConfigSourceClass
)

func TestDecode(t *testing.T) {
	t.Parallel()
	gpuConfig := metav1.TypeMeta{APIVersion: APIVersion, Kind: GPUConfigKind}
	migConfig := metav1.TypeMeta{APIVersion: APIVersion, Kind: MIGConfigKind}
	tests := map[string]struct {
		raw  string
		want Config
	}{
		"no fields":               {of("GPUConfig", ""), &GPUConfig{TypeMeta: gpuConfig}},
		"MIG without fields":      {of("MIGConfig", ""), &MIGConfig{TypeMeta: migConfig}},
		"null parts":              {of("GPUConfig", `,"timeSlicing":null,"mps":null`), &GPUConfig{TypeMeta: gpuConfig}},
		"empty time slicing":      {of("GPUConfig", `,"timeSlicing":{}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Default}}},
		"null interval":           {of("GPUConfig", `,"timeSlicing":{"interval":null}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Default}}},
		"long time slices":        {of("GPUConfig", `,"timeSlicing":{"interval":"Long"}`), &GPUConfig{TypeMeta: gpuConfig, TimeSlicing: &TimeSlicing{Interval: Long}}},
		"empty MPS":               {of("MIGConfig", `,"mps":{}`), &MIGConfig{TypeMeta: migConfig, MPS: &MPS{}}},
		"a memory limit":          {of("GPUConfig", `,"memoryLimit":"4Gi"`), &GPUConfig{TypeMeta: gpuConfig, MemoryLimit: new(Memory(4 << 30))}},
		"MPS with limits":         {of("MIGConfig", `,"mps":{"activeThreadPercentage":50,"pinnedMemoryLimit":"4Gi"}`), &MIGConfig{TypeMeta: migConfig, MPS: &MPS{ActiveThreadPercentage: new(50), PinnedMemoryLimit: new(Memory(4 << 30))}}},
		"MPS limits at their end": {of("GPUConfig", `,"mps":{"activeThreadPercentage":100,"pinnedMemoryLimit":"1048576"}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{ActiveThreadPercentage: new(100), PinnedMemoryLimit: new(Memory(1 << 20))}}},
		"a fraction of memory":    {of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"1.5Gi"}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{PinnedMemoryLimit: new(Memory(3 << 29))}}},
		"thousands of bytes":      {of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"2000k"}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{PinnedMemoryLimit: new(Memory(2_000_000))}}},
		"a number of bytes":       {of("GPUConfig", `,"mps":{"pinnedMemoryLimit":1048577}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{PinnedMemoryLimit: new(Memory(1<<20 + 1))}}},
		"all memory there is":     {of("GPUConfig", `,"mps":{"pinnedMemoryLimit":"1024Ti"}`), &GPUConfig{TypeMeta: gpuConfig, MPS: &MPS{PinnedMemoryLimit: new(Memory(1 << 50))}}},
	}
	for name, test := range tests {
		for _, driver := range []string{driver, nvidiaDriver, "gpu.example.com"} {
			got, err := Decode(driver, class, []byte(test.raw))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%s, %s: %v (-want +got):\n%s", name, driver, err, diff)
			}
		}
	}
}

// TestNVIDIAKinds checks that NVIDIA's kinds have the effect that they have with NVIDIA's driver.
func TestNVIDIAKinds(t *testing.T) {
	t.Parallel()
	mps := func(s MPSSettings) Settings { s.Private = true; return Settings{MPS: s} }
	tests := map[string]struct {
		raw  string
		want Settings
	}{
		"no fields":                   {nvidia("GpuConfig", ""), Settings{}},
		"null sharing":                {nvidia("GpuConfig", `,"sharing":null`), Settings{}},
		"time-slicing, nothing more":  {nvidia("GpuConfig", `,"sharing":{"strategy":"TimeSlicing"}`), Settings{TimeSlice: "Default"}},
		"null time-slicing":           {nvidia("GpuConfig", `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":null,"mpsConfig":null}`), Settings{TimeSlice: "Default"}},
		"empty time-slicing":          {nvidia("GpuConfig", `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{}}`), Settings{TimeSlice: "Default"}},
		"long time slices":            {nvidia("GpuConfig", `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Long"}}`), Settings{TimeSlice: "Long"}},
		"MPS, nothing more":           {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS"}`), mps(MPSSettings{})},
		"empty MPS":                   {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{}}`), mps(MPSSettings{})},
		"MPS with limits":             {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"10Gi"}}`), mps(MPSSettings{ActiveThreadPercentage: 50, PinnedMemoryBytes: 10 << 30})},
		"zero percent is no limit":    {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":0}}`), mps(MPSSettings{})},
		"a number of bytes":           {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":1073741824}}`), mps(MPSSettings{PinnedMemoryBytes: 1 << 30})},
		"several users":               {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"multiUser":true}}`), mps(MPSSettings{})},
		"not several users":           {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"multiUser":false}}`), mps(MPSSettings{})},
		"null limits per device":      {nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":null}}`), mps(MPSSettings{})},
		"MIG without fields":          {nvidia("MigDeviceConfig", ""), Settings{}},
		"a virtual machine":           {nvidia("VfioDeviceConfig", ""), Settings{}},
		"a virtual machine's IOMMU":   {nvidia("VfioDeviceConfig", `,"iommu":{"backendPolicy":"PreferIommuFD","enableAPIDevice":true}`), Settings{}},
		"time-slicing is no-op there": {nvidia("MigDeviceConfig", `,"sharing":{"strategy":"TimeSlicing"}`), Settings{}},
		"MPS on a MIG":                {nvidia("MigDeviceConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":10}}`), mps(MPSSettings{ActiveThreadPercentage: 10})},
	}
	for name, test := range tests {
		config, err := Decode(nvidiaDriver, class, []byte(test.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := Settings{TimeSlice: "Short", MPS: MPSSettings{Private: true, ActiveThreadPercentage: 77}} // of an earlier entry
		config.apply(&got)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if config, err := Decode(driver, class, []byte(test.raw)); err == nil || !strings.Contains(err.Error(), "is only for the driver name gpu.nvidia.com: with gpu.tessera.dev use GPUConfig, MIGConfig of gpu.tessera.dev/v1alpha1") {
			t.Errorf("%s, with our own driver name: %v, %v", name, config, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const (
		types    = `must be one of GPUConfig, MIGConfig of gpu.tessera.dev/v1alpha1; GpuConfig, MigDeviceConfig, VfioDeviceConfig of resource.nvidia.com/v1beta1`
		memory   = `must be an amount of memory from 1Mi to 1Pi, such as 512Mi or 4Gi`
		interval = `must be one of Default, Short, Medium, Long`
	)
	mps := func(fields string) string { return of("MIGConfig", `,"mps":{`+fields+`}`) }
	strategy := func(fields string) string { return nvidia("GpuConfig", `,"sharing":{"strategy":`+fields+`}`) }
	limit := func(value string) string { return mps(`"pinnedMemoryLimit":` + value) }
	perDevice := func(kind, limits string) string {
		return nvidia(kind, `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPerDevicePinnedMemoryLimit":`+limits+`}}`)
	}
	tests := map[string]struct{ raw, want string }{
		"nothing":                   {"", `apiVersion "", kind "": ` + types},
		"null":                      {"null", `apiVersion "", kind "": ` + types},
		"empty":                     {"{}", `apiVersion "", kind "": ` + types},
		"a list":                    {"[]", "cannot unmarshal array"},
		"cut off":                   {`{"apiVersion":`, "unexpected end of JSON input"},
		"two objects":               {of("GPUConfig", "") + "{}", "invalid character '{' after top-level value"},
		"unknown kind":              {of("VGPUConfig", ""), `kind "VGPUConfig": ` + types},
		"kind of another case":      {of("GpuConfig", ""), `kind "GpuConfig": ` + types},
		"NVIDIA's with our version": {of("MigDeviceConfig", ""), types},
		"ours with NVIDIA's":        {nvidia("GPUConfig", ""), types},
		"kind of numbers":           {`{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":3}`, "kind of type int64: " + types},
		"another version":           {`{"apiVersion":"gpu.tessera.dev/v1","kind":"GPUConfig"}`, `apiVersion "gpu.tessera.dev/v1", kind "GPUConfig": ` + types},
		"unknown field":             {of("GPUConfig", `,"timeslicing":{}`), `GPUConfig: timeslicing: Forbidden: unknown field: the fields are timeSlicing, mps`},
		"unknown nested field":      {of("GPUConfig", `,"timeSlicing":{"intervall":"Long"}`), `GPUConfig: timeSlicing.intervall: Forbidden: unknown field: the fields are interval`},
		"field with a newline":      {of("GPUConfig", `,"a\nb":{}`), `GPUConfig: a\nb: Forbidden: unknown field`},
		"repeated field":            {of("GPUConfig", `,"mps":{},"mps":{}`), `GPUConfig: duplicate field "mps"`},
		"repeated deep inside":      {mps(`"pinnedMemoryLimit":"1Gi","pinnedMemoryLimit":"2Gi"`), `duplicate field "mps.pinnedMemoryLimit"`},
		"field of the other":        {of("MIGConfig", `,"timeSlicing":{}`), `MIGConfig: timeSlicing: Forbidden: unknown field: the fields are mps`},
		"unknown interval":          {of("GPUConfig", `,"timeSlicing":{"interval":"long"}`), `timeSlicing.interval: Invalid value: "long": ` + interval},
		"empty interval":            {of("GPUConfig", `,"timeSlicing":{"interval":""}`), `timeSlicing.interval: Invalid value: "": ` + interval},
		"interval of numbers":       {of("GPUConfig", `,"timeSlicing":{"interval":3}`), "timeSlicing.interval: Invalid value: 3: " + interval},
		"list for an object":        {of("GPUConfig", `,"timeSlicing":[]`), "timeSlicing: Invalid value: \"[]interface {}\": must be an object"},
		"no percent":                {of("GPUConfig", `,"mps":{"activeThreadPercentage":0}`), "mps.activeThreadPercentage: Invalid value: 0: must be a whole number from 1 to 100"},
		"too many percent":          {mps(`"activeThreadPercentage":101`), "mps.activeThreadPercentage: Invalid value: 101"},
		"half a percent":            {mps(`"activeThreadPercentage":0.5`), "mps.activeThreadPercentage: Invalid value: 0.5"},
		"a whole fraction":          {mps(`"activeThreadPercentage":50.0`), "mps.activeThreadPercentage: Invalid value: 50"},
		"percent in words":          {mps(`"activeThreadPercentage":"50"`), `mps.activeThreadPercentage: Invalid value: "50"`},
		"more than an int":          {mps(`"activeThreadPercentage":18446744073709551666`), `mps.activeThreadPercentage: Invalid value: 1.8446744073709552e+19`},
		"a memory limit of MIG":     {of("MIGConfig", `,"memoryLimit":"4Gi"`), "memoryLimit: Forbidden: unknown field"},
		"an object as memory limit": {of("GPUConfig", `,"memoryLimit":{}`), "memoryLimit: Invalid value"},
		"a truth for memory":        {limit("true"), "mps.pinnedMemoryLimit: Invalid value: true: " + memory},
		"empty memory":              {limit(`""`), `mps.pinnedMemoryLimit: Invalid value: "": ` + memory},
		"little memory":             {limit(`"1048575"`), `mps.pinnedMemoryLimit: Invalid value: "1048575": ` + memory},
		"a little less":             {limit(`"1048575.9"`), `mps.pinnedMemoryLimit: Invalid value: "1048575.9"`},
		"too few bytes":             {limit(`1048575`), `mps.pinnedMemoryLimit: Invalid value: 1048575: ` + memory},
		"half of a byte":            {limit(`1048576.5`), `mps.pinnedMemoryLimit: Invalid value: 1.0485765e+06`},
		"less than no memory":       {limit(`"-4Gi"`), `mps.pinnedMemoryLimit: Invalid value: "-4Gi"`},
		"more than all memory":      {limit(`"999999999999999Ti"`), "mps.pinnedMemoryLimit: Invalid value"},
		"more than a pebibyte":      {limit(`"1024.001Ti"`), "mps.pinnedMemoryLimit: Invalid value"},
		"unknown unit":              {limit(`"4K"`), `mps.pinnedMemoryLimit: Invalid value: "4K"`},
		"a minute of CPU":           {limit(`"1e-99999999"`), `mps.pinnedMemoryLimit: Invalid value: "1e-99999999"`},
		"two things wrong":          {of("GPUConfig", `,"mps":{"activeThreadPercentage":0},"timeSlicing":{"interval":"No"}`), `[timeSlicing.interval: Invalid value: "No": ` + interval + `, mps.activeThreadPercentage: Invalid`},

		"NVIDIA: no strategy":           {nvidia("GpuConfig", `,"sharing":{}`), "sharing.strategy: Required value: must be one of TimeSlicing, MPS"},
		"NVIDIA: null strategy":         {strategy("null"), "sharing.strategy: Required value"},
		"NVIDIA: unknown strategy":      {strategy(`"Fabric"`), `sharing.strategy: Invalid value: "Fabric": must be one of TimeSlicing, MPS`},
		"NVIDIA: empty sharing":         {nvidia("GpuConfig", `,"sharing":"MPS"`), "sharing: Invalid value"},
		"NVIDIA: unknown interval":      {strategy(`"TimeSlicing","timeSlicingConfig":{"interval":"long"}`), `sharing.timeSlicingConfig.interval: Invalid value: "long": ` + interval},
		"NVIDIA: MPS when time-slicing": {strategy(`"TimeSlicing","mpsConfig":{}`), "sharing.mpsConfig: Forbidden: is only for strategy MPS"},
		"NVIDIA: time-slicing with MPS": {strategy(`"MPS","timeSlicingConfig":{}`), "sharing.timeSlicingConfig: Forbidden: is only for strategy TimeSlicing"},
		"NVIDIA: too many percent":      {strategy(`"MPS","mpsConfig":{"defaultActiveThreadPercentage":101}`), "sharing.mpsConfig.defaultActiveThreadPercentage: Invalid value: 101: must be a whole number from 0 to 100"},
		"NVIDIA: too little memory":     {strategy(`"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":"1Ki"}`), "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: Invalid value: \"1Ki\": " + memory},
		"NVIDIA: a position and a sign": {perDevice("GpuConfig", `{"+1":"5Gi"}`), `sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[+1]: Invalid value: "+1": the key must be the position of a GPU`},
		"NVIDIA: two forms of a key":    {perDevice("GpuConfig", `{"00":"5Gi"}`), `defaultPerDevicePinnedMemoryLimit[00]: Invalid value: "00": the key must be`},
		"NVIDIA: a newline in a key":    {perDevice("GpuConfig", `{"0\n":"5Gi"}`), `defaultPerDevicePinnedMemoryLimit[0\n]: Invalid value`},
		"NVIDIA: too little for one":    {perDevice("GpuConfig", `{"0":"5Gi","1":"1M"}`), `defaultPerDevicePinnedMemoryLimit[1]: Invalid value: "1M": ` + memory},
		"NVIDIA: none for one":          {perDevice("GpuConfig", `{"0":null}`), `defaultPerDevicePinnedMemoryLimit[0]: Invalid value: null: ` + memory},
		"NVIDIA: a list of limits":      {perDevice("GpuConfig", `["5Gi"]`), `defaultPerDevicePinnedMemoryLimit: Invalid value: "[]interface {}": must be an object with at most 64 keys`},
		"NVIDIA: the UUID of a MIG":     {perDevice("MigDeviceConfig", `{"`+uuids[0]+`":"5Gi"}`), "the key must be the position of a device among those that the entry applies to, in the order of the allocation, such as 0; a MIG device has no UUID before it is prepared"},
		"NVIDIA: a key twice":           {perDevice("GpuConfig", `{"0":"5Gi","0":"6Gi"}`), `duplicate field "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.0"`},
		"NVIDIA: users in words":        {strategy(`"MPS","mpsConfig":{"multiUser":"yes"}`), "sharing.mpsConfig.multiUser: Invalid value: \"yes\": must be true or false"},
		"NVIDIA: time slices on MIG":    {nvidia("MigDeviceConfig", `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{}}`), "sharing.timeSlicingConfig: Forbidden: unknown field: the fields are strategy, mpsConfig"},
		"an unknown extra":              {of("GPUConfig", `,"devices":["nvlink"]`), `devices: Invalid value: ["nvlink"]: must be a list of some of gds, gdrcopy, rdma, each at most once`},
		"an extra twice":                {of("MIGConfig", `,"devices":["gds","gds"]`), "each at most once"},
		"an extra in words":             {of("GPUConfig", `,"devices":"gds"`), "must be a list of some of"},
		"NVIDIA: another version":       {`{"apiVersion":"resource.nvidia.com/v1","kind":"GpuConfig"}`, types},
	}
	for name, test := range tests {
		got, err := Decode(nvidiaDriver, class, []byte(test.raw))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v, want %q", name, got, err, test.want)
		}
	}
}

// TestClaimsCannotRequestExtras checks that only a DeviceClass may add device nodes of the node, whatever the value.
func TestClaimsCannotRequestExtras(t *testing.T) {
	t.Parallel()
	const want = "devices: Forbidden: is only for DeviceClasses, because it requires an administrator's consent: remove it from the claim"
	for _, kind := range []string{GPUConfigKind, MIGConfigKind} {
		for _, value := range []string{`["rdma"]`, `["gds","gdrcopy"]`, `[]`, `"rdma"`} {
			raw := []byte(of(kind, `,"devices":`+value))
			for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClaim, ""} {
				if got, err := Decode(driver, source, raw); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of source %q: %v, %v, want %q", raw, source, got, err, want)
				}
			}
		}
		if _, err := Decode(driver, resourceapi.AllocationConfigSourceClaim, []byte(of(kind, `,"devices":null`))); err != nil {
			t.Errorf("%s with a field that is null: %v", kind, err)
		}
	}
}

// TestKindsAreTheTypes checks that the schemas and the Go types have the same fields.
func TestKindsAreTheTypes(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		config, err := blank(kind)
		if err != nil {
			t.Fatal(err)
		}
		fields := append([]Field{{Name: "apiVersion", Type: Choice}, {Name: "kind", Type: Choice}}, kind.Fields...)
		if diff := cmp.Diff(shape(fields), shapeOf(reflect.TypeOf(config))); diff != "" {
			t.Errorf("%s (-schema +type):\n%s", kind.Name, diff)
		}
	}
}

// shape returns the fields of an object by name, each with its fields or its type.
func shape(fields []Field) map[string]any {
	names := map[string]any{}
	for _, f := range fields {
		if f.Type == Object {
			names[f.Name] = shape(f.Fields)
		} else {
			names[f.Name] = f.Type.String()
		}
	}
	return names
}

func shapeOf(typ reflect.Type) any {
	if typ.Kind() == reflect.Pointer {
		return shapeOf(typ.Elem())
	}
	if typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.String {
		return Choices.String()
	}
	if typ.Kind() == reflect.Map && typ.Elem() == reflect.TypeFor[Memory]() {
		return Sizes.String()
	}
	if typ.Kind() != reflect.Struct {
		scalars := map[reflect.Kind]string{reflect.Int: Number.String(), reflect.Bool: Truth.String(), reflect.Int64: Size.String(), reflect.String: Choice.String()}
		return scalars[typ.Kind()]
	}
	names := map[string]any{}
	for i := range typ.NumField() {
		field := typ.Field(i)
		if field.Anonymous {
			maps.Copy(names, shapeOf(field.Type).(map[string]any))
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = shapeOf(field.Type)
	}
	return names
}

// TestReference checks that every field has a description in the documentation.
func TestReference(t *testing.T) {
	t.Parallel()
	rows := Reference()
	if len(rows) != 30 {
		t.Errorf("%d rows, want 30", len(rows))
	}
	want := Row{
		APIVersion: APIVersion, Kind: GPUConfigKind, Name: "mps.activeThreadPercentage", Type: "integer", Unit: "percent",
		Default: "no limit", Allowed: "must be a whole number from 1 to 100", Effect: "the part of the multiprocessors that each client may use",
	}
	if !slices.Contains(rows, want) {
		t.Errorf("no row %+v", want)
	}
	for _, row := range rows {
		if row.Name == "" || row.Type == "" || row.Allowed == "" || row.Effect == "" {
			t.Errorf("incomplete: %+v", row)
		}
	}
}

// FuzzDecode checks that no input makes Decode panic, and that accepted input has valid settings.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", "[]", `"x"`, "{\"apiVersion\":", "\x00", of("GPUConfig", ""), of("MIGConfig", ""), of("Pod", ""),
		of("GPUConfig", `,"timeSlicing":{}`), of("GPUConfig", `,"timeSlicing":null,"mps":{}`), of("GPUConfig", `,"timeSlicing":{"interval":"Short"}`),
		of("MIGConfig", `,"mps":{"activeThreadPercentage":50,"pinnedMemoryLimit":"4Gi"}`), of("MIGConfig", `,"mps":{"pinnedMemoryLimit":"1e-99999999"}`),
		of("GPUConfig", `,"x":`+strings.Repeat("[", 5000)),
		nvidia("GpuConfig", `,"sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{}}`), nvidia("GpuConfig", `,"sharing":{}`),
		nvidia("GpuConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultPinnedDeviceMemoryLimit":1.5e9,"multiUser":true,"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi"}}}`),
		nvidia("MigDeviceConfig", `,"sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":0}}`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := Decode(nvidiaDriver, class, raw)
		if err != nil {
			return
		}
		var s Settings
		config.apply(&s)
		valid(t, s)
		if config.serves(gpu.Monitor) || config.serves(gpu.VFIO) || config.serves(gpu.None) {
			t.Errorf("%s serves a device without parameters", config.kind())
		}
		// Accepted parameters have the same settings after they are encoded and decoded.
		again, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		config, err = Decode(nvidiaDriver, class, again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		var second Settings
		config.apply(&second)
		if s != second {
			t.Errorf("%+v, then %+v", s, second)
		}
	})
}

// valid checks that the settings are within their bounds.
func valid(t *testing.T, s Settings) {
	t.Helper()
	if !slices.Contains([]string{"", "Default", "Short", "Medium", "Long"}, s.TimeSlice) {
		t.Errorf("interval %q", s.TimeSlice)
	}
	if p := s.MPS.ActiveThreadPercentage; p < 0 || p > 100 {
		t.Errorf("%d percent", p)
	}
	if n := s.MPS.PinnedMemoryBytes; n != 0 && (n < leastPinned || n > mostPinned) {
		t.Errorf("%d bytes", n)
	}
	if s.MPS != (MPSSettings{}) && !s.MPS.Private {
		t.Errorf("limits without a daemon: %+v", s.MPS)
	}
}
