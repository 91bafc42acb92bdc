package wire_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tessera-gpu/tessera/api/wire"
)

// The regular expressions with which the API server validates a semantic version and a name.
var (
	semantic   = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// review collects the errors that the API server's validation would return for a pool.
type review struct {
	problems []string
	sets     map[string]resourceapi.CounterSet
	devices  map[string]bool
}

func (r *review) refuse(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func reviewed(pool wire.Pool) []string {
	r := &review{sets: map[string]resourceapi.CounterSet{}, devices: map[string]bool{}}
	if p := validation.IsDNS1123Subdomain(pool.Name); len(p) > 0 {
		r.refuse("pool %q: %v", pool.Name, p)
	}
	if len(pool.Slices) == 0 {
		r.refuse("pool %q: no slice", pool.Name)
	}
	for _, s := range pool.Slices {
		if len(s.SharedCounters) > 0 && len(s.Devices) > 0 {
			r.refuse("a slice with counters and devices")
		}
		if len(s.SharedCounters) > resourceapi.ResourceSliceMaxCounterSets {
			r.refuse("%d counter sets in a slice", len(s.SharedCounters))
		}
		if len(s.Devices) > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures {
			r.refuse("%d devices in a slice", len(s.Devices))
		}
		for _, set := range s.SharedCounters {
			r.counterSet(set)
		}
	}
	for _, s := range pool.Slices {
		for _, d := range s.Devices {
			r.device(d)
		}
	}
	return r.problems
}

func (r *review) counterSet(set resourceapi.CounterSet) {
	if _, twice := r.sets[set.Name]; twice {
		r.refuse("counter set %s twice", set.Name)
	}
	r.sets[set.Name] = set
	r.label(set.Name)
	if n := len(set.Counters); n == 0 || n > resourceapi.ResourceSliceMaxCountersPerCounterSet {
		r.refuse("counter set %s has %d counters", set.Name, n)
	}
	for name := range set.Counters {
		r.label(name)
	}
}

func (r *review) device(d resourceapi.Device) {
	if r.devices[d.Name] {
		r.refuse("device %s twice", d.Name)
	}
	r.devices[d.Name] = true
	r.label(d.Name)
	if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		r.refuse("%s: %d attributes and capacities", d.Name, n)
	}
	if n := len(d.Attributes); n > resourceapi.ResourceSliceMaxAttributeValuesPerDevice {
		r.refuse("%s: %d attribute values", d.Name, n)
	}
	for name, a := range d.Attributes {
		r.name(d.Name, name)
		r.attribute(d.Name, name, a)
	}
	for name, c := range d.Capacity {
		r.name(d.Name, name)
		r.capacity(d, name, c)
	}
	if n := len(d.Taints); n > resourceapi.DeviceTaintsMaxLength {
		r.refuse("%s: %d taints", d.Name, n)
	}
	for _, t := range d.Taints {
		r.taint(d.Name, t)
	}
	if n := len(d.ConsumesCounters); n > resourceapi.ResourceSliceMaxDeviceCounterConsumptionsPerDevice {
		r.refuse("%s: %d counter sets", d.Name, n)
	}
	for _, c := range d.ConsumesCounters {
		if len(c.Counters) == 0 {
			r.refuse("%s: consumes an empty set", d.Name)
		}
		for name := range c.Counters {
			if _, ok := r.sets[c.CounterSet].Counters[name]; !ok {
				r.refuse("%s: consumes unknown %s/%s", d.Name, c.CounterSet, name)
			}
		}
	}
}

func (r *review) attribute(device string, name resourceapi.QualifiedName, a resourceapi.DeviceAttribute) {
	set := 0
	if a.IntValue != nil || a.BoolValue != nil {
		set++
	}
	if v := a.StringValue; v != nil {
		set++
		if *v == "" || len(*v) > resourceapi.DeviceAttributeMaxValueLength || !utf8.ValidString(*v) {
			r.refuse("%s: %s = %q", device, name, *v)
		}
	}
	if v := a.VersionValue; v != nil {
		set++
		if len(*v) > resourceapi.DeviceAttributeMaxValueLength || !semantic.MatchString(*v) {
			r.refuse("%s: %s = version %q", device, name, *v)
		}
	}
	if set != 1 {
		r.refuse("%s: %s has %d values", device, name, set)
	}
}

func (r *review) taint(device string, t resourceapi.DeviceTaint) {
	for _, p := range append(content.IsLabelKey(t.Key), content.IsLabelValue(t.Value)...) {
		r.refuse("%s: taint %s=%s: %s", device, t.Key, t.Value, p)
	}
	switch t.Effect {
	case resourceapi.DeviceTaintEffectNone, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute:
	default:
		r.refuse("%s: taint %s: effect %q", device, t.Key, t.Effect)
	}
}

// capacity validates a request policy like the API server.
func (r *review) capacity(d resourceapi.Device, name resourceapi.QualifiedName, c resourceapi.DeviceCapacity) {
	policy := c.RequestPolicy
	many := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	if many != (policy != nil) {
		r.refuse("%s: %s: shared %v, policy %v", d.Name, name, many, policy)
	}
	if policy == nil {
		return
	}
	if policy.Default == nil {
		r.refuse("%s: %s: no default", d.Name, name)
		return
	}
	if policy.ValidRange == nil {
		if policy.Default.Cmp(c.Value) > 0 {
			r.refuse("%s: %s: default %v of %v", d.Name, name, policy.Default, c.Value)
		}
		return
	}
	least, step := policy.ValidRange.Min, policy.ValidRange.Step
	if policy.Default.Cmp(*least) < 0 || policy.Default.Cmp(c.Value) > 0 {
		r.refuse("%s: %s: default %v outside %v..%v", d.Name, name, policy.Default, least, c.Value)
	}
	if step == nil {
		return
	}
	next := least.DeepCopy()
	next.Add(*step)
	if step.Sign() <= 0 || next.Cmp(c.Value) > 0 {
		r.refuse("%s: %s: step %v above min %v does not fit %v", d.Name, name, step, least, c.Value)
	}
	above := policy.Default.DeepCopy()
	above.Sub(*least)
	if rest := above.Value() % step.Value(); rest != 0 {
		r.refuse("%s: %s: default %v is no multiple of %v", d.Name, name, policy.Default, step)
	}
}

func (r *review) name(device string, name resourceapi.QualifiedName) {
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified {
		domain, id = "", domain
	}
	if len(domain) > resourceapi.DeviceMaxDomainLength || len(id) > resourceapi.DeviceMaxIDLength || !identifier.MatchString(id) {
		r.refuse("%s: name %q", device, name)
	}
}

func (r *review) label(name string) {
	if p := validation.IsDNS1123Label(name); len(p) > 0 {
		r.refuse("name %q: %v", name, p)
	}
}

// TestReviewRefuses checks that the checks of this file can fail: each of these pools violates one rule.
func TestReviewRefuses(t *testing.T) {
	t.Parallel()
	one := map[string]resourceapi.Counter{"memory-slice-0": {Value: resource.MustParse("1")}}
	text := func(s string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
		return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"a": {StringValue: &s}}
	}
	tests := map[string]wire.Pool{
		"no slice":     {Name: "p"},
		"mixed":        {Name: "p", Slices: []wire.Slice{{SharedCounters: []resourceapi.CounterSet{{Name: "g", Counters: one}}, Devices: []resourceapi.Device{{Name: "d"}}}}},
		"65 devices":   {Name: "p", Slices: []wire.Slice{{Devices: numbered(65)}}},
		"twice":        {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d"}, {Name: "d"}}}}},
		"dot":          {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "1g.10gb"}}}}},
		"long string":  {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", Attributes: text(strings.Repeat("x", 65))}}}}},
		"empty set":    {Name: "p", Slices: []wire.Slice{{SharedCounters: []resourceapi.CounterSet{{Name: "g"}}}}},
		"unknown set":  {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "g", Counters: one}}}}}}},
		"long pool":    {Name: strings.Repeat("p", 254), Slices: []wire.Slice{{}}},
		"no semver":    {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"a": {VersionValue: new("580.65.06")}}}}}}},
		"17 taints":    {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", Taints: make([]resourceapi.DeviceTaint, 17)}}}}},
		"taint's key":  {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", Taints: []resourceapi.DeviceTaint{{Key: "a/b/c", Effect: "None"}}}}}}},
		"policy alone": {Name: "p", Slices: []wire.Slice{{Devices: []resourceapi.Device{{Name: "d", Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"c": {RequestPolicy: &resourceapi.CapacityRequestPolicy{}}}}}}}},
	}
	for name, pool := range tests {
		if len(reviewed(pool)) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
	if p := reviewed(wire.Pool{Name: "p", Slices: []wire.Slice{{Devices: numbered(64)}}}); len(p) > 0 {
		t.Errorf("64 devices: %v", p)
	}
}

func numbered(n int) []resourceapi.Device {
	devices := make([]resourceapi.Device, n)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("d%d", i)
	}
	return devices
}
