package requirements

import (
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// comparisons are what expressions are drawn of: %[1]s is a domain, %[2]s an attribute, %[3]s a value.
var comparisons = []string{
	`device.driver == "%[1]s"`,
	`.device.driver == "%[1]s"`,
	`device.allowMultipleAllocations`,
	`device.attributes["%[1]s"].%[2]s == %[3]s`,
	`device.attributes["%[1]s"]["%[2]s"] == %[3]s`,
	`device.attributes.%[1]s.%[2]s == %[3]s`,
	`has(device.attributes["%[1]s"].%[2]s)`,
	`has(device.attributes.%[1]s)`,
	`"%[2]s" in device.attributes["%[1]s"]`,
	`"%[1]s" in device.attributes`,
	`device.attributes["%[1]s"].?%[2]s.orValue("none") == %[3]s`,
	`device.attributes["%[1]s"][?"%[2]s"].hasValue()`,
	`device.attributes[?"%[1]s"].?%[2]s.hasValue()`,
	`device.attributes["%[1]s"].%[2]s == device.attributes["e"].y`,
	`device.capacity["%[1]s"].%[2]s.compareTo(quantity("2")) > 0`,
	`device.capacity["%[1]s"].%[2]s.isLessThan(quantity("1500m"))`,
	`cel.bind(d, device.attributes["%[1]s"], has(d.%[2]s) && d.%[2]s == %[3]s)`,
	`cel.bind(d, device.attributes["%[1]s"], d.exists(name, name == "%[2]s"))`,
	`cel.bind(d, device.attributes, d["%[1]s"].%[2]s == %[3]s)`,
	`cel.bind(d, device.attributes["%[1]s"].%[2]s, d == %[3]s)`,
	`cel.bind(device, {"driver": "%[1]s"}, device.driver == "d")`,
	`device.attributes["%[1]s"].exists(name, name == "%[2]s")`,
	`["%[2]s", "y"].exists(name, name in device.attributes["%[1]s"])`,
	`["%[2]s", "y"].all(name, device.attributes["%[1]s"][name] == %[3]s)`,
	`[%[3]s].exists(device, device == %[3]s)`,
	`[%[3]s, "b"].exists(v, device.attributes["%[1]s"].%[2]s == v)`,
	`size(device.attributes["%[1]s"]) > 1`,
	`(device.allowMultipleAllocations ? device.attributes["%[1]s"] : device.attributes["e"]).%[2]s == %[3]s`,
	`device.attributes["%[1]s"].%[2]s in [%[3]s, 1, true]`,
}

func drawExpression(t *rapid.T, depth int) string {
	if depth == 0 || rapid.IntRange(0, 2).Draw(t, "operator") == 0 {
		return fmt.Sprintf("("+rapid.SampledFrom(comparisons).Draw(t, "comparison")+")"+`%[4]s`,
			rapid.SampledFrom([]string{"d", "e"}).Draw(t, "domain"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name"),
			rapid.SampledFrom([]string{`"a"`, `"b"`, `1`, `true`, `semver("1.0.0")`}).Draw(t, "value"), "")
	}
	form := rapid.SampledFrom([]string{"%s && %s", "%s || %s", "!(%s) && %s", "(%s ? %s : false)"}).Draw(t, "form")
	return "(" + fmt.Sprintf(form, drawExpression(t, depth-1), drawExpression(t, depth-1)) + ")"
}

func drawDevice(t *rapid.T) *resourceapi.Device {
	d := &resourceapi.Device{Name: "device", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}, Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}}
	if rapid.Bool().Draw(t, "shared") {
		d.AllowMultipleAllocations = new(rapid.Bool().Draw(t, "allows"))
	}
	for _, id := range []resourceapi.QualifiedName{"x", "y"} {
		// An attribute of the driver's domain may be qualified or not; both together would conflict.
		for _, domain := range []resourceapi.QualifiedName{rapid.SampledFrom([]resourceapi.QualifiedName{"", "d/"}).Draw(t, "own"), "e/"} {
			switch rapid.IntRange(0, 6).Draw(t, "attribute") {
			case 0, 1:
				d.Attributes[domain+id] = resourceapi.DeviceAttribute{StringValue: new(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "text"))}
			case 2:
				d.Attributes[domain+id] = resourceapi.DeviceAttribute{IntValue: new(rapid.Int64Range(0, 2).Draw(t, "number"))}
			case 3:
				d.Attributes[domain+id] = resourceapi.DeviceAttribute{BoolValue: new(rapid.Bool().Draw(t, "bool"))}
			case 4:
				d.Attributes[domain+id] = resourceapi.DeviceAttribute{VersionValue: new(rapid.SampledFrom([]string{"1.0.0", "2.0.0"}).Draw(t, "version"))}
			}
			if rapid.Bool().Draw(t, "has capacity") {
				d.Capacity[domain+id] = resourceapi.DeviceCapacity{Value: resource.MustParse(rapid.SampledFrom([]string{"1", "1Gi", "1500m", "3"}).Draw(t, "capacity"))}
			}
		}
	}
	return d
}

// TestCachedResultsEqualTheAllocators compares what is cached with what the allocator would evaluate.
func TestCachedResultsEqualTheAllocators(t *testing.T) {
	t.Parallel()
	cached, opaque := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawExpression(t, 2)
		s, err := newSelector(text)
		if err != nil {
			t.Skipf("%s: %v", text, err)
		}
		if s.readsUnknown {
			opaque++
		}
		for range 40 {
			driver := rapid.SampledFrom([]string{"d", "f"}).Draw(t, "driver")
			d := drawDevice(t)
			want, wantErr := s.matches(driver, d, nil)
			all := fit.NewSet(1)
			all.Add(0)
			got, err := s.filter(driver, []*resourceapi.Device{d}, all, nil)
			if (err != nil) != (wantErr != nil) || err == nil && got.Has(0) != want {
				t.Fatalf("%s, device %+v: got %v, %v, want %v, %v", text, d, got, err, want, wantErr)
			}
		}
		if s.evaluated < 40 {
			cached++
		}
	})
	if cached == 0 || opaque == 0 {
		t.Errorf("%d selectors used cached results, %d were opaque: both must be tried", cached, opaque)
	}
}

func TestLook(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression string
		attributes []readField
		capacities []readField
		opaque     bool
	}{
		{expression: `device.driver == "gpu.tessera.dev"`},
		{expression: `device.attributes["d"].x == 1 && sign(device.capacity["d"].m) > 0`, attributes: []readField{{"d", "x"}}, capacities: []readField{{"d", "m"}}},
		{expression: `cel.bind(d, device.attributes["d"], d.x == 1 && d.y == 2)`, attributes: []readField{{"d", "x"}, {"d", "y"}}},
		{expression: `"x" in device.attributes["d"] || has(device.attributes.d.y)`, attributes: []readField{{"d", "x"}, {"d", "y"}}},
		{expression: `device.attributes["d"].x.startsWith("a")`, attributes: []readField{{"d", "x"}}},
		{expression: `device.attributes["d"].exists(n, n == "x")`, opaque: true},
		{expression: `"d" in device.attributes`, opaque: true},
		{expression: `device.attributes["d"][device.driver] == 1`, opaque: true},
		{expression: `[device].exists(d, d.driver == "d")`, opaque: true},
		{expression: `cel.bind(d, device, d.driver == "d")`},
	}
	for _, test := range tests {
		s, err := newSelector(test.expression)
		if err != nil {
			t.Errorf("%s: %v", test.expression, err)
			continue
		}
		if s.readsUnknown != test.opaque || !s.readsUnknown && (!slices.Equal(s.reads.attributes, test.attributes) || !slices.Equal(s.reads.capacities, test.capacities)) {
			t.Errorf("%s: sees %+v, opaque %t, want %+v and %+v, opaque %t", test.expression, s.reads, s.readsUnknown, test.attributes, test.capacities, test.opaque)
		}
	}
}
