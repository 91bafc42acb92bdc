package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/crds"
)

// TestVerdicts checks the verdict of every case. e2e/tests/installer sends them to a real API server.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range load(t) {
		err := verdict(t, c)
		switch {
		case c.Refused == "" && err != nil:
			t.Errorf("%s: refused: %v", c.Name, err)
		case c.Refused != "" && err == nil:
			t.Errorf("%s: accepted, want %q", c.Name, c.Refused)
		case c.Refused != "" && !strings.Contains(err.Error(), c.Refused):
			t.Errorf("%s: %v\nwant %q", c.Name, err, c.Refused)
		}
	}
}

// TestEveryRuleHasACase checks that each rule between fields refuses something.
func TestEveryRuleHasACase(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, c := range load(t) {
		if err := verdict(t, c); err != nil {
			text.WriteString(err.Error() + "\n")
		}
	}
	list, err := crds.Load()
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, crd := range list {
		for _, message := range messages(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema) {
			rules++
			if !strings.Contains(text.String(), message) {
				t.Errorf("%s: no case is refused with %q", crd.Name, message)
			}
		}
	}
	if rules < 30 {
		t.Errorf("%d rules found, want all", rules)
	}
}

func messages(schema apiextensions.JSONSchemaProps) []string {
	var all []string
	for _, rule := range schema.XValidations {
		all = append(all, rule.Message)
	}
	for _, property := range schema.Properties {
		all = append(all, messages(property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		all = append(all, messages(*schema.Items.Schema)...)
	}
	return all
}

// TestNodeConfig checks that a NodeConfig is right or wrong in a policy as it is in a file: the markers of the type accept what Load accepts.
func TestNodeConfig(t *testing.T) {
	t.Parallel()
	configs := []string{
		"{}", "{shapes: [gpu, mig, timeshare, mps, monitor]}", "{shapes: []}", "{shapes: [whole]}", "{shapes: [vfio]}", "{shapes: [gpu, vfio]}", "{shapes: [mig, mig]}", "{shapes: mig}", "{shapes: [Mig]}",
		"{shares: 1}", "{shares: 1000}", "{shares: 0}", "{shares: 1001}", "{shares: -1}", "{shares: many}", "{shares: 1.5}",
		"{profiles: []}", "{profiles: [1g.10gb, 1g.10gb+me, 1g.24gb+me.all, 1g.24gb-me]}", "{profiles: [0g.10gb]}", "{profiles: [1g.10gb, 1g.10gb]}", "{profiles: ['']}", "{profiles: [1g.10gb+]}",
		"{driverName: gpu.nvidia.com}", "{driverName: a}", "{driverName: ''}", "{driverName: a..b}", "{driverName: -a}", "{driverName: a_b}", "{driverName: A}",
		"{driverName: " + strings.Repeat("a", 63) + "}", "{driverName: " + strings.Repeat("a", 64) + "}",
		"{attributes: Compact}", "{attributes: Full}", "{attributes: compact}", "{attributes: All}",
		"{shape: [gpu]}", "{roots: {hosts: /}}", "{roots: {}}",
	}
	for _, root := range []string{"/", "/host", "/a/b", "/.a", "/..a", "/...", "/a b", "/a.", "/a..", "a", "./a", "/a/", "//", "/a//b", "/.", "/..", "/a/.", "/a/..", "/a/./b", "/a/../b", "/../a", "~"} {
		for _, name := range []string{"host", "proc", "sys", "dev", "driver"} {
			configs = append(configs, "{roots: {"+name+": '"+root+"'}}")
		}
	}
	configs = append(configs, "{roots: {dev: '', driver: ''}}")
	accepted := 0
	for _, config := range configs {
		_, fileErr := v1alpha1.Load([]byte("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\n" + block(t, config)))
		var spec map[string]any
		if err := yaml.Unmarshal([]byte("nodeAgent: {config: "+config+"}"), &spec); err != nil {
			t.Fatal(err)
		}
		policyErr := verdict(t, Case{Name: config, Policy: spec})
		if (fileErr == nil) != (policyErr == nil) {
			t.Errorf("%s: in a file %v, in a policy %v", config, fileErr, policyErr)
		}
		if fileErr == nil {
			accepted++
		}
	}
	if refused := len(configs) - accepted; accepted < 40 || refused < 60 {
		t.Errorf("%d configurations accepted, %d refused: the table needs both", accepted, refused)
	}
}

// block is YAML in the form in which it may follow other keys.
func block(t *testing.T, flow string) string {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(flow), &value); err != nil {
		t.Fatal(err)
	}
	if len(value) == 0 {
		return ""
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDefaultsAreAccepted checks that a policy with all defaults written out is one that may be written.
func TestDefaultsAreAccepted(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.ClusterPolicySpec{
		NodeAgent: v1alpha1.NodeAgentSpec{Config: &v1alpha1.NodeConfigSpec{}}, Upgrade: v1alpha1.UpgradePolicy{Window: &v1alpha1.MaintenanceWindow{Start: "22:00"}},
	}.Complete()
	*spec.NodeAgent.Config = v1alpha1.Default().NodeConfigSpec
	spec.Upgrade.Window.Duration.Duration = time.Hour
	if err := verdict(t, Case{Name: "defaults", Policy: content(t, spec)}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	driver := v1alpha1.NVIDIADriverSpec{DriverSpec: v1alpha1.DriverSpec{}.Complete(), Default: true, Upgrade: &spec.Upgrade}
	if err := verdict(t, Case{Name: "defaults", Driver: content(t, driver)}); err != nil {
		t.Errorf("the defaults of a driver: %v", err)
	}
}

func content(t *testing.T, spec any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func load(t *testing.T) []Case {
	t.Helper()
	cases, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(cases, func(c Case) bool { return c.From != nil }) {
		t.Fatal("no case is an edit")
	}
	return cases
}

func verdict(t *testing.T, c Case) error {
	t.Helper()
	object, before, err := c.Object()
	if err != nil {
		t.Fatal(err)
	}
	return Verdict(t.Context(), object, before)
}
