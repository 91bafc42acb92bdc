package v1alpha1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

const header = "apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\n"

func TestLoad(t *testing.T) {
	t.Parallel()
	changed := func(change func(*NodeConfig)) NodeConfig {
		c := NodeConfig{
			TypeMeta: metav1.TypeMeta{APIVersion: "tessera.dev/v1alpha1", Kind: "NodeConfig"},
			NodeConfigSpec: NodeConfigSpec{
				Shapes: []Shape{"gpu", "mig", "timeshare", "mps", "monitor"}, Shares: 10, DriverName: "gpu.tessera.dev", Attributes: "Compact",
				Health: HealthSpec{QuietPeriod: &metav1.Duration{Duration: 5 * time.Minute}},
				Roots:  Roots{Host: "/", Proc: "/proc", Sys: "/sys"},
			},
		}
		change(&c)
		return c
	}
	tests := map[string]struct {
		file string
		want NodeConfig
	}{
		"nothing decided": {header, changed(func(*NodeConfig) {})},
		"as JSON":         {`{"apiVersion":"tessera.dev/v1alpha1","kind":"NodeConfig","shares":3}`, changed(func(c *NodeConfig) { c.Shares = 3 })},
		"comments around": {"# before\n---\n" + header + "\n---\n# after\n", changed(func(*NodeConfig) {})},
		"one shape":       {header + "shapes: [mig]\n", changed(func(c *NodeConfig) { c.Shapes = []Shape{ShapeMIG} })},
		"one root": {header + "roots: {driver: /run/nvidia/driver}\n", changed(func(c *NodeConfig) {
			c.Roots.Driver = "/run/nvidia/driver"
		})},
		"profiles": {header + "profiles: [1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me]\n", changed(func(c *NodeConfig) {
			c.Profiles = []string{"1g.10gb", "1g.10gb+me", "1g.24gb+me.all", "1g.24gb-me"}
		})},
		"another's name": {header + "driverName: gpu.nvidia.com\n", changed(func(c *NodeConfig) {
			c.DriverName, c.Attributes = NVIDIADriverName, Full
		})},
		"another's name, compact": {header + "driverName: gpu.nvidia.com\nattributes: Compact\n", changed(func(c *NodeConfig) {
			c.DriverName = NVIDIADriverName
		})},
		"health, in part": {header + "health: {evict: true}\n", changed(func(c *NodeConfig) { c.Health.Evict = true })},
		"everything": {header + "shapes: [gpu]\nshares: 1000\nprofiles: []\ndriverName: gpu.example.com\nattributes: Full\n" +
			"health: {evict: true, quietPeriod: 1h, xids: [{code: 13, severity: Warning}, {code: 65535, severity: Fatal, remedy: Replace}]}\n" +
			"roots: {host: /host, proc: /host/proc, sys: /host/sys, dev: /host, driver: /driver}\n", changed(func(c *NodeConfig) {
			c.NodeConfigSpec = NodeConfigSpec{
				Shapes: []Shape{ShapeGPU}, Shares: 1000, Profiles: []string{}, DriverName: "gpu.example.com", Attributes: Full,
				Health: HealthSpec{Evict: true, QuietPeriod: &metav1.Duration{Duration: time.Hour}, XIDs: []XIDRule{
					{Code: 13, Severity: "Warning"}, {Code: 65535, Severity: "Fatal", Remedy: "Replace"},
				}},
				Roots: Roots{Host: "/host", Proc: "/host/proc", Sys: "/host/sys", Dev: "/host", Driver: "/driver"},
			}
		})},
	}
	for name, test := range tests {
		got, err := Load([]byte(test.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ file, want string }{
		"empty file":         {"", "the file is empty"},
		"only comments":      {"# nothing\n", "the file is empty"},
		"two documents":      {header + "---\n" + header, "more than one document"},
		"not YAML":           {"a: [", "did not find"},
		"a list":             {"- a\n", "cannot unmarshal array"},
		"no type":            {"shares: 3\n", `apiVersion "", kind "": must be tessera.dev/v1alpha1, NodeConfig`},
		"another kind":       {"apiVersion: v1\nkind: Pod\n", `apiVersion "v1", kind "Pod": must be`},
		"later version":      {"apiVersion: tessera.dev/v1\nkind: NodeConfig\n", `apiVersion "tessera.dev/v1"`},
		"unknown key":        {header + "shape: [gpu]\n", `unknown field "shape"`},
		"unknown nested key": {header + "roots: {hosts: /}\n", `unknown field "roots.hosts"`},
		"another case":       {header + "Shapes: [gpu]\n", `unknown field "Shapes"`},
		"two unknown keys":   {header + "a: 1\nroots: {b: 2}\n", `unknown field "a", unknown field "roots.b"`},
		"repeated key":       {header + "shares: 3\nshares: 4\n", `key "shares" already set`},
		"repeated in JSON":   {`{"apiVersion":"tessera.dev/v1alpha1","kind":"NodeConfig","shares":3,"shares":4}`, `key "shares" already set`},
		"wrong type":         {header + "shares: many\n", "shares of type int"},
		"no shape":           {header + "shapes: []\n", "shapes: Required value: must name at least one of [gpu mig timeshare mps monitor]"},
		"null shape":         {header + "shapes: null\n", "shapes: Required value"},
		"unknown shape":      {header + "shapes: [gpu, slice]\n", `shapes[1]: Unsupported value: "slice": supported values: "gpu", "mig"`},
		"vfio with others":   {header + "shapes: [gpu, vfio]\n", "vfio excludes all other shapes"},
		"shape twice":        {header + "shapes: [mig, mig]\n", `shapes[1]: Duplicate value: "mig"`},
		"no shares":          {header + "shares: 0\n", "shares: Invalid value: 0: must be between 1 and 1000, inclusive"},
		"consumable 0":       {header + "consumableShares: '0'\n", "consumableShares: Invalid value: \"0\": must be memory, unlimited, or a number from 1 to 1000"},
		"consumable 1001":    {header + "consumableShares: '1001'\n", "consumableShares: Invalid value"},
		"consumable number":  {header + "consumableShares: 4\n", "consumableShares of type string"},
		"too many shares":    {header + "shares: 1001\n", "shares: Invalid value: 1001"},
		"profile id":         {header + "profiles: [\"19\"]\n", `profiles[0]: Invalid value: "19": must be the name of a MIG profile, such as 1g.10gb`},
		"profile twice":      {header + "profiles: [1g.10gb, 1g.10gb]\n", `profiles[1]: Duplicate value: "1g.10gb"`},
		"driver name":        {header + "driverName: GPU\n", `driverName: Invalid value: "GPU"`},
		"long driver name":   {header + "driverName: " + strings.Repeat("a", 64) + "\n", "driverName: Too long: may not be more than 63 bytes"},
		"no driver name":     {header + "driverName: \"\"\n", "driverName: Invalid value"},
		"attribute set":      {header + "attributes: full\n", `attributes: Unsupported value: "full": supported values: "Compact", "Full"`},
		"no quiet":           {header + "health: {quietPeriod: 0s}\n", `health.quietPeriod: Invalid value: "0s": must be more than 0s and at most 1h0m0s`},
		"less than no quiet": {header + "health: {quietPeriod: -1m}\n", `health.quietPeriod: Invalid value: "-1m0s"`},
		"a day of quiet":     {header + "health: {quietPeriod: 24h}\n", "health.quietPeriod: Invalid value"},
		"quiet in days":      {header + "health: {quietPeriod: 1d}\n", `unknown unit "d" in duration "1d"`},
		"unknown health key": {header + "health: {evicted: true}\n", `unknown field "health.evicted"`},
		"unknown rule key":   {header + "health: {xids: [{xid: 13, severity: Fatal}]}\n", `unknown field "health.xids[0].xid"`},
		"unknown severity": {header + "health: {xids: [{code: 13, severity: fatal}]}\n",
			`health.xids[0].severity: Unsupported value: "fatal": supported values: "Harmless", "Warning", "Critical", "Fatal"`},
		"no severity": {header + "health: {xids: [{code: 13}]}\n", `health.xids[0].severity: Unsupported value: ""`},
		"unknown remedy": {header + "health: {xids: [{code: 79, severity: Fatal, remedy: Pray}]}\n",
			`health.xids[0].remedy: Unsupported value: "Pray": supported values: "Wait", "Restart", "Reset", "Reboot", "Replace"`},
		"code 0":            {header + "health: {xids: [{code: 0, severity: Fatal}]}\n", "health.xids[0].code: Invalid value: 0: must be between 1 and 65535, inclusive"},
		"large code":        {header + "health: {xids: [{code: 65536, severity: Fatal}]}\n", "health.xids[0].code: Invalid value: 65536"},
		"code twice":        {header + "health: {xids: [{code: 13, severity: Fatal}, {code: 13, severity: Warning}]}\n", "health.xids[1].code: Duplicate value: 13"},
		"too many rules":    {header + "health: {xids: [" + manyRules(65) + "]}\n", "health.xids: Too many: 65: must have at most 64 items"},
		"relative root":     {header + "roots: {host: host}\n", `roots.host: Invalid value: "host": must be an absolute path`},
		"no root":           {header + "roots: {proc: \"\"}\n", "roots.proc: Invalid value"},
		"root with dots":    {header + "roots: {driver: /run/../driver}\n", "roots.driver: Invalid value"},
		"root with a slash": {header + "roots: {dev: /host/}\n", "roots.dev: Invalid value"},
		"two things wrong":  {header + "shares: 0\nattributes: All\n", "[shares: Invalid value: 0: must be between 1 and 1000, inclusive, attributes: Unsupported value"},
	}
	for name, test := range tests {
		got, err := Load([]byte(test.file))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, test.want)
		}
	}
}

// manyRules is so many rules in YAML.
func manyRules(n int) string {
	rules := make([]string, n)
	for i := range rules {
		rules[i] = fmt.Sprintf("{code: %d, severity: Warning}", i+1)
	}
	return strings.Join(rules, ", ")
}

func TestRules(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file  string
		quiet time.Duration
		want  map[int]gpu.Judgement
	}{
		"nothing decided": {header, 5 * time.Minute, nil},
		"quiet":           {header + "health: {quietPeriod: 90s}\n", 90 * time.Second, nil},
		"a known XID keeps absent fields": {header + "health: {xids: [{code: 79, severity: Warning}]}\n", 5 * time.Minute, map[int]gpu.Judgement{
			79: {Severity: gpu.Warning, Remedy: gpu.Reboot, Meaning: "the GPU has fallen off the bus", Help: "reboot the node; if it recurs, check the power supply and reseat the GPU"},
		}},
		"its remedy too": {header + "health: {xids: [{code: 79, severity: Critical, remedy: Replace}]}\n", 5 * time.Minute, map[int]gpu.Judgement{
			79: {Severity: gpu.Critical, Remedy: gpu.Replace, Meaning: "the GPU has fallen off the bus", Help: "reboot the node; if it recurs, check the power supply and reseat the GPU"},
		}},
		"an unknown XID": {header + "health: {xids: [{code: 9999, severity: Fatal, remedy: Reset}]}\n", 5 * time.Minute, map[int]gpu.Judgement{
			9999: {Severity: gpu.Fatal, Remedy: gpu.Reset, Meaning: "an XID that is not in Tessera's table", Help: "see NVIDIA's XID catalog; health.xids of a NodeConfig can set its severity and remedy"},
		}},
	}
	for name, test := range tests {
		c, err := Load([]byte(test.file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(gpu.Rules{XIDs: test.want, Quiet: test.quiet}, c.Health.Rules()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRulesOfNoFile checks that a spec that was not loaded judges by the table.
func TestRulesOfNoFile(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(gpu.Rules{}, HealthSpec{XIDs: []XIDRule{{Code: 13, Severity: "bad"}}}.Rules()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestOffer(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Profiles = []string{"1g.10gb"}
	got, err := c.Offer()
	want := gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.TimeShare, gpu.MPS, gpu.Monitor}, Profiles: []string{"1g.10gb"}, Shares: 10}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("offer: %v (-want +got):\n%s", err, diff)
	}
	for value, shares := range map[string]int{"memory": 0, "unlimited": 0, "4": 4} {
		c.ConsumableShares = value
		got, err := c.Offer()
		want.Shapes, want.Shares = []gpu.Shape{gpu.TimeShare, gpu.MIG, gpu.Monitor}, shares
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("offer with consumable shares %s: %v (-want +got):\n%s", value, err, diff)
		}
	}
	c.Shapes = []Shape{"slice"}
	if _, err := c.Offer(); err == nil {
		t.Error("an unknown shape is offered")
	}
}

// TestDefaultIsValid checks that what is written for a node without a file reads back as it was.
func TestDefaultIsValid(t *testing.T) {
	t.Parallel()
	text, err := yaml.Marshal(Default())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(text)
	if diff := cmp.Diff(Default(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// FuzzLoad checks that no input makes Load panic, and that whatever it accepts is complete: it writes
// and reads back as the same configuration.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", header, header + "shapes: [mig]\nshares: 3\n", header + "roots: {host: /host}\n---\n", "{}", "null", "[]", "- a", "a: &a [*a]", "\x00", "%YAML 1.1\n---\n",
		header + "driverName: gpu.nvidia.com\nprofiles: [1g.10gb+me]\n", header + "health: {quietPeriod: 90s, xids: [{code: 13, severity: Fatal}]}\n", `{"apiVersion":"tessera.dev/v1alpha1","kind":"NodeConfig","shapes":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load(data)
		if err != nil {
			return
		}
		if _, err := c.Offer(); err != nil {
			t.Errorf("accepted without an offer: %v", err)
		}
		text, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Load(text)
		if diff := cmp.Diff(c, again, cmp.Transformer("empty", func(list []string) []string { return append([]string{}, list...) })); err != nil || diff != "" {
			t.Errorf("%v (-first +again):\n%s", err, diff)
		}
	})
}
