package template

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
)

// tessera runs the verb with the arguments and returns its output.
func tessera(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := Command()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestOutput(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nshapes: [gpu, mig]\nprofiles: [3g.40gb]\ndriverName: gpu.nvidia.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for golden, args := range map[string][]string{
		"h100x8.txt":           {"--machine", "h100x8"},
		"a30x4l40sx4.txt":      {"--machine", "a30x4l40sx4", "--driver-version", "580.65.06", "--cuda-version", "13.0"},
		"configured.txt":       {"--machine", "h100x8", "--node-config", config},
		"t4x1.yaml":            {"--machine", "t4x1", "--driver-version", "580.65.06", "-o", "yaml"},
		"t4x1-karpenter.json":  {"--machine", "t4x1", "--karpenter", "-o", "json"},
		"gb200x4-bindings.txt": {"--machine", "gb200x4", "--karpenter", "-o", `jsonpath={range .attributeBindings[*]}{.attribute}{"\t"}{range .devices[*]}{.device} {end}{"\n"}{end}`},
	} {
		t.Run(golden, func(t *testing.T) {
			t.Parallel()
			out, err := tessera(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			outputtest.Golden(t, golden, out)
		})
	}
}

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	invalid := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(invalid, []byte("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nshape: [gpu]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for failure, args := range map[string][]string{
		`required flag(s) "machine" not set`:                                       {},
		`--machine "h100": "h100" is not in the catalog: must be one of a100-40x2`: {"--machine", "h100"},
		`--driver-version "latest": must be a version such as 580.65.06`:           {"--machine", "t4x1", "--driver-version", "latest"},
		`--cuda-version "v13": must be a version such as 13.0`:                     {"--machine", "t4x1", "--cuda-version", "v13"},
		`config.yaml: read NodeConfig: unknown field "shape"`:                      {"--machine", "t4x1", "--node-config", invalid},
		`no such file or directory`:                                                {"--machine", "t4x1", "--node-config", "missing"},
		`--output "xml": must be one of text, json, yaml`:                          {"--machine", "t4x1", "-o", "xml"},
		`unknown command "h100x8"`:                                                 {"h100x8"},
	} {
		if out, err := tessera(t, args...); err == nil || !strings.Contains(err.Error(), failure) || out != "" {
			t.Errorf("%q: error %v, want %q; output %q", args, err, failure, out)
		}
	}
}

// TestTemplateMatchesNode compares the template of every machine with what its agent publishes, by the rule of Cluster Autoscaler, which compares the names of
// attributes and the number of devices with the same names, and by what an allocator reads in addition: capacity, counters and attributes with known values.
// Source: simulator/dynamicresources/comparator of Cluster Autoscaler, whose module cannot be imported.
func TestTemplateMatchesNode(t *testing.T) {
	t.Parallel()
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName} {
		config := v1alpha1.Default()
		config.DriverName = name
		if name == v1alpha1.NVIDIADriverName {
			config.Attributes = v1alpha1.Full
		}
		options, err := publish.Options(config.NodeConfigSpec)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range machines {
			node, err := m.Node("node")
			if err != nil {
				t.Fatal(err)
			}
			published, err := wire.Encode(node, options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := newTemplate(m, options, versions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(anonymous(published, got.unknown), anonymous(got.pool, got.unknown)); diff != "" {
				t.Errorf("%s %s: template (-node +template):\n%s", name, m.Name, diff)
			}
			text, err := json.Marshal([]any{got.list(), got.dynamicResources()})
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range node.GPUs {
				for _, identity := range []string{g.PCI, g.UUID, g.Name(), g.PCIeRoot, g.Clique} {
					if identity != "" && strings.Contains(string(text), identity) {
						t.Errorf("%s: the template has %q of GPU %d", m.Name, identity, i)
					}
				}
			}
		}
	}
}

// anonymous returns the slices without names of devices and counter sets, and without the values of the attributes.
func anonymous(p wire.Pool, unknown []resourceapi.QualifiedName) []wire.Slice {
	var list []wire.Slice
	sets := map[string]string{}
	for _, s := range p.Slices {
		var part wire.Slice
		for _, set := range s.SharedCounters {
			sets[set.Name] = string(rune('a' + len(sets)))
			set.Name = sets[set.Name]
			part.SharedCounters = append(part.SharedCounters, set)
		}
		for _, d := range s.Devices {
			d.Name, d.Attributes, d.ConsumesCounters = "", maps.Clone(d.Attributes), slices.Clone(d.ConsumesCounters)
			for _, name := range unknown {
				if _, has := d.Attributes[name]; has {
					d.Attributes[name] = resourceapi.DeviceAttribute{}
				}
			}
			for i := range d.ConsumesCounters {
				d.ConsumesCounters[i].CounterSet = sets[d.ConsumesCounters[i].CounterSet]
			}
			part.Devices = append(part.Devices, d)
		}
		list = append(list, part)
	}
	return list
}
