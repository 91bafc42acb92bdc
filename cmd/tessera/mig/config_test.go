package mig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyday is a file as administrators write it for mig-parted.
const everyday = `
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
  by-model:
    - device-filter: ["0x233010DE", "0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    - device-filter: 0x233510de
      devices: [0, 3]
      mig-enabled: true
      mig-devices: {"1g.18gb+me": 1}
  placed:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"3g.40gb": [4], "1g.10gb": 3}
    - devices: [1]
      mig-enabled: true
      mig-devices: {}
`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(everyday))
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	want := Config{Version: "v1", Layouts: map[string][]Entry{
		"all-disabled": {{Devices: Devices{All: true}, Enabled: &no}},
		"all-1g.10gb":  {{Devices: Devices{All: true}, Enabled: &yes, Instances: map[string]Amount{"1g.10gb": {Count: 7}}}},
		"by-model": {
			{Filter: Filter{"0x233010DE", "0x20B210DE"}, Devices: Devices{All: true}, Enabled: &yes, Instances: map[string]Amount{"1g.10gb": {Count: 2}, "2g.20gb": {Count: 1}, "3g.40gb": {Count: 1}}},
			{Filter: Filter{"0x233510DE"}, Devices: Devices{Indices: []int{0, 3}}, Enabled: &yes, Instances: map[string]Amount{"1g.18gb+me": {Count: 1}}},
		},
		"placed": {
			{Devices: Devices{Indices: []int{0}}, Enabled: &yes, Instances: map[string]Amount{"3g.40gb": {Count: 1, Starts: []int{4}}, "1g.10gb": {Count: 3}}},
			{Devices: Devices{Indices: []int{1}}, Enabled: &yes, Instances: map[string]Amount{}},
		},
	}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := c.Select("all-balanced"); err == nil || !strings.Contains(err.Error(), `layout "all-balanced": the file has all-1g.10gb, all-disabled, by-model, placed`) {
		t.Errorf("a label that the file lacks: %v", err)
	}
	if _, err := c.Select(""); err == nil {
		t.Error("no label, several layouts: no error")
	}
}

func TestParseRefuses(t *testing.T) {
	entry := func(text string) string { return "version: v1\nmig-configs:\n  a:\n  - {" + text + "}\n" }
	tests := map[string]struct{ text, want string }{
		"no YAML":              {"\t", "read the layouts: "},
		"other version":        {"version: v2\nmig-configs: {}", `version "v2": must be v1`},
		"unknown field":        {entry("devices: all, mig-enabled: false, mig-mode: on"), `unknown field "mig-configs.a[0].mig-mode"`},
		"twice":                {"version: v1\nversion: v1", "already set"},
		"no entries":           {"version: v1\nmig-configs: {a: []}", "mig-configs.a: has no entries"},
		"no devices":           {entry("mig-enabled: false"), "mig-configs.a[0].devices: must be all or a list of indices"},
		"devices null":         {entry("devices: null, mig-enabled: false"), "must be all or a list"},
		"other word":           {entry("devices: some, mig-enabled: false"), `devices: "some": must be all or a list of indices`},
		"negative index":       {entry("devices: [-1], mig-enabled: false"), "devices: -1: must not be negative"},
		"no mode":              {entry("devices: all"), "mig-configs.a[0].mig-enabled: must be true or false"},
		"no instances":         {entry("devices: all, mig-enabled: true"), "{} is none"},
		"instances without it": {entry("devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}"), "must be left out with mig-enabled: false"},
		"half an instance":     {entry("devices: all, mig-enabled: true, mig-devices: {1c.3g.40gb: 1}"), "mig-devices[1c.3g.40gb]: compute instances smaller than their GPU instance are not supported: use 3g.40gb"},
		"negative amount":      {entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: -1}"), "must be a number of instances, or a list"},
		"amount null":          {entry("devices: all, mig-enabled: true, mig-devices: {1g.10gb: null}"), "must be a number"},
		"short id":             {entry(`device-filter: "0x2330", devices: all, mig-enabled: false`), `device-filter[0]: "0x2330": must be 0x, four digits`},
		"id list":              {entry(`device-filter: [true], devices: all, mig-enabled: false`), "must be an id such as 0x233010DE or a list of them"},
	}
	for name, test := range tests {
		if c, err := Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v; want %q", name, c, err, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(everyday))
	f.Add([]byte(`{"version":"v1","mig-configs":{"a":[{"devices":[0],"mig-enabled":true,"mig-devices":{"x":[1]}}]}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		// No input may end the program.
		_, _ = Parse(data)
	})
}
