package migrate

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/tests/policies"
)

var update = flag.Bool("update", false, "rewrite testdata")

// fixtures are what is converted together, by the name of what it becomes.
var fixtures = map[string][]string{
	"container": {"policy-container.yaml", "mig-parted.yaml"},
	"sandbox":   {"policy-sandbox.yaml"},
	"drivers":   {"policy-drivers.yaml", "drivers.yaml"},
	"small":     {"values-small.yaml"},
	"full":      {"values-full.yaml"},
	"alone":     {"drivers.yaml"},
}

// operand are the fields that every operand has.
const operand = "enabled repository image version imagePullPolicy imagePullSecrets resources args env hostNetwork"

// everyField are all fields of the GPU Operator's two kinds and of its values, by their object or operand. The list is that of
// the reference on the GPU Operator, written out.
var everyField = map[string]string{
	"ClusterPolicy operator": "defaultRuntime runtimeClass initContainer.repository initContainer.image initContainer.version initContainer.imagePullPolicy " +
		"initContainer.imagePullSecrets labels annotations metrics.serviceMonitor use_ocp_driver_toolkit",
	"ClusterPolicy daemonsets": "labels annotations tolerations priorityClassName imagePullSecrets updateStrategy rollingUpdate.maxUnavailable podSecurityContext",
	"ClusterPolicy driver": operand + " useNvidiaDriverCRD usePrecompiled useOpenKernelModules kernelModuleType startupProbe livenessProbe readinessProbe " +
		"rdma.enabled rdma.useHostMofed manager.repository manager.image manager.version manager.env repoConfig.configMapName certConfig.name licensingConfig.configMapName " +
		"licensingConfig.secretName licensingConfig.nlsEnabled virtualTopology.config kernelModuleConfig.name secretEnv",
	"ClusterPolicy driver.upgradePolicy": "autoUpgrade maxParallelUpgrades maxUnavailable podDeletion.force podDeletion.timeoutSeconds podDeletion.deleteEmptyDir " +
		"waitForCompletion.podSelector waitForCompletion.timeoutSeconds drain.enable drain.force drain.podSelector drain.timeoutSeconds drain.deleteEmptyDir",
	"ClusterPolicy toolkit":      operand + " installDir",
	"ClusterPolicy devicePlugin": operand + " config.name config.default mps.root",
	"ClusterPolicy dcgmExporter": operand + " config.name serviceMonitor.enabled serviceMonitor.interval serviceMonitor.honorLabels serviceMonitor.additionalLabels " +
		"serviceMonitor.relabelings service.type service.internalTrafficPolicy hostPID hpcJobMapping.enabled hpcJobMapping.directory enablePodLabels enablePodUID podLabelAllowlistRegex",
	"ClusterPolicy dcgm":               operand + " hostPort",
	"ClusterPolicy nodeStatusExporter": operand,
	"ClusterPolicy gfd":                operand,
	"ClusterPolicy mig":                "strategy",
	"ClusterPolicy migManager":         operand + " config.name config.default gpuClientsConfig.name",
	"ClusterPolicy psp":                "enabled",
	"ClusterPolicy psa":                "enabled",
	"ClusterPolicy validator": "repository image version imagePullPolicy imagePullSecrets resources args env hostNetwork plugin.env toolkit.env driver.env cuda.env vfioPCI.env " +
		"vgpuManager.env vgpuDevices.env",
	"ClusterPolicy gds":                     operand,
	"ClusterPolicy gdrcopy":                 operand,
	"ClusterPolicy sandboxWorkloads":        "enabled defaultWorkload mode",
	"ClusterPolicy vfioManager":             operand + " driverManager.image",
	"ClusterPolicy sandboxDevicePlugin":     operand,
	"ClusterPolicy kataSandboxDevicePlugin": operand,
	"ClusterPolicy vgpuManager":             operand + " driverManager.image kernelModuleConfig.name",
	"ClusterPolicy vgpuDeviceManager":       operand + " config.name config.default",
	"ClusterPolicy kataManager":             "enabled repository image version config.artifactsDir",
	"ClusterPolicy ccManager":               operand + " defaultMode",
	"ClusterPolicy cdi":                     "enabled default nriPluginEnabled",
	"ClusterPolicy hostPaths":               "rootFS driverInstallDir kubeletRootDir",

	"NVIDIADriver": "default driverType usePrecompiled kernelModuleType startupProbe livenessProbe readinessProbe rdma.enabled rdma.useHostMofed gds.enabled gds.repository gds.image " +
		"gds.version gdrcopy.enabled gdrcopy.repository gdrcopy.image gdrcopy.version repository image version imagePullPolicy imagePullSecrets manager.repository manager.image " +
		"manager.version resources args env repoConfig.name certConfig.name licensingConfig.name licensingConfig.secretName licensingConfig.nlsEnabled virtualTopologyConfig.name " +
		"kernelModuleConfig.name secretEnv nodeSelector nodeAffinity labels annotations tolerations priorityClassName podSecurityContext hostNetwork",
	"NVIDIADriver upgradePolicy": "autoUpgrade maxParallelUpgrades maxUnavailable podDeletion.force podDeletion.timeoutSeconds podDeletion.deleteEmptyDir " +
		"waitForCompletion.podSelector waitForCompletion.timeoutSeconds drain.enable drain.force drain.podSelector drain.timeoutSeconds drain.deleteEmptyDir",

	"Helm values": "platform.openshift nfd.enabled nfd.nodefeaturerules psa.enabled cdi.enabled sandboxWorkloads.enabled hostPaths.rootFS daemonsets.labels validator.image operator.upgradeCRD " +
		"operator.cleanupCRD operator.resources mig.strategy driver.nvidiaDriverCRD.enabled driver.nvidiaDriverCRD.deployDefaultCR toolkit.enabled devicePlugin.enabled dcgm.enabled " +
		"dcgmExporter.enabled gfd.enabled migManager.enabled nodeStatusExporter.enabled gds.enabled gdrcopy.enabled vgpuManager.enabled vgpuDeviceManager.enabled vfioManager.enabled " +
		"kataManager.enabled sandboxDevicePlugin.enabled kataSandboxDevicePlugin.enabled ccManager.enabled clusterPolicy.deployCR gpuCluster.deployCR draDriver extraObjects node-feature-discovery",
}

// settled are fields that change nothing with a value that they have in the fixtures, and need not be named: why.
var settled = map[string]string{
	"operator.use_ocp_driver_toolkit=false":                   "nothing to do",
	"driver.enabled=true":                                     "the NVIDIADrivers decide",
	"driver.usePrecompiled=false":                             "the default",
	"usePrecompiled=false":                                    "the default",
	"driver.nvidiaDriverCRD.enabled=true":                     "read with deployDefaultCR",
	"devicePlugin.enabled=true":                               "so is the node agent",
	"cdi.enabled=true":                                        "it always is",
	"cdi.nriPluginEnabled=false":                              "it always is",
	"dcgmExporter.enablePodLabels=false":                      "nothing to do",
	"dcgmExporter.enablePodUID=false":                         "nothing to do",
	"vgpuDeviceManager.config.name=":                          "the default there",
	"sandboxWorkloads.enabled=false":                          "nothing to do",
	"sandboxWorkloads.defaultWorkload=container":              "the default there",
	"driver.upgradePolicy.waitForCompletion.podSelector=":     "nothing is waited for",
	"driver.upgradePolicy.waitForCompletion.timeoutSeconds=0": "nothing is waited for",
	"driverType=gpu":                                          "as without it",
	"driverType=vgpu":                                         "the driver of a guest is one like others",
	"nodeSelector=map[]":                                      "all nodes, as without one",
	"platform.openshift=false":                                "nothing to do",
	"nfd.enabled=false":                                       "nothing to do",
	"nfd.nodefeaturerules=false":                              "nothing to do",
	"gpuCluster.deployCR=false":                               "nothing to do",
	"clusterPolicy.deployCR=true":                             "there is one",
	"driver.kernelModuleType=auto":                            "useOpenKernelModules decides",
	"version=v1":                                              "of the format of a MIG configuration",
}

// TestEveryFieldIsConvertedOrNamed takes each field out of each fixture: what comes out must differ, or the field must be named.
func TestEveryFieldIsConvertedOrNamed(t *testing.T) {
	t.Parallel()
	fields := 0
	for name, files := range fixtures {
		sources := read(t, files)
		whole := converted(t, sources)
		for i, source := range sources {
			for _, path := range leaves(source.fields(), nil) {
				fields++
				rest := slices.Clone(sources)
				rest[i] = without(t, source, path)
				field := strings.Join(path, ".")
				without, err := Convert(rest...)
				if err != nil { // the field was the only content
					continue
				}
				changed := cmp.Diff(objects(t, whole), objects(t, without)) != ""
				named := slices.ContainsFunc(whole.Notes, func(n Note) bool { return strings.TrimPrefix(n.Field, "spec.") == field && n.Reason != "" })
				if !changed && !named && settled[fmt.Sprintf("%s=%v", field, source.value(path))] == "" {
					t.Errorf("%s: %s %s is lost: neither converted nor named", name, source["kind"], field)
				}
			}
		}
	}
	if fields < 300 {
		t.Errorf("%d fields in the fixtures: too few to be all", fields)
	}
}

// TestFixturesUseEveryField holds the fixtures to the list of fields.
func TestFixturesUseEveryField(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, files := range fixtures {
		for _, source := range read(t, files) {
			kind, _, _, err := source.identify()
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range leaves(source.fields(), nil) {
				for i := range path {
					used[kind+" "+strings.Join(path[:i+1], ".")] = true
				}
			}
		}
	}
	for where, names := range everyField {
		prefix := where + "."
		if where == "NVIDIADriver" || where == "Helm values" {
			prefix = where + " "
		}
		for name := range strings.FieldsSeq(names) {
			if !used[prefix+name] {
				t.Errorf("no fixture has the field %s%s", prefix, name)
			}
		}
	}
}

// TestOutput compares what is printed with what was looked over by people.
func TestOutput(t *testing.T) {
	t.Parallel()
	for name, files := range fixtures {
		var out bytes.Buffer
		if err := converted(t, read(t, files)).Write(&out); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "out-"+name+".yaml")
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOutputIsAccepted validates the output with the API server's code.
func TestOutputIsAccepted(t *testing.T) {
	t.Parallel()
	for name, files := range fixtures {
		var out bytes.Buffer
		if err := converted(t, read(t, files)).Write(&out); err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(out.String(), "---\n") {
			content, err := yaml.YAMLToJSON([]byte(document))
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			if err := object.UnmarshalJSON(content); err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, document)
			}
			if err := policies.Verdict(t.Context(), object, nil); err != nil {
				t.Errorf("%s: %s %s: %v", name, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	policy := Source{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
	tests := map[string]struct {
		sources []Source
		want    string
	}{
		"nothing":             {nil, "no input found"},
		"another kind":        {[]Source{{"apiVersion": "v1", "kind": "Pod"}}, "convert v1 Pod: it must be a ClusterPolicy of nvidia.com/v1"},
		"ours":                {[]Source{{"apiVersion": "tessera.dev/v1alpha1", "kind": "ClusterPolicy"}}, "it must be a ClusterPolicy of nvidia.com/v1"},
		"two policies":        {[]Source{policy, policy}, "more than one was passed"},
		"a policy and values": {[]Source{policy, {"driver": map[string]any{}}}, "more than one was passed"},
	}
	for name, test := range tests {
		if _, err := Convert(test.sources...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestImages checks that references are taken over as they are and no tag is made up.
func TestImages(t *testing.T) {
	t.Parallel()
	tests := []struct{ repository, image, version, want, note string }{
		{"nvcr.io/nvidia", "dcgm", "4.4.1", "nvcr.io/nvidia/dcgm:4.4.1", ""},
		{"nvcr.io/nvidia/", "dcgm", "sha256:ab", "nvcr.io/nvidia/dcgm@sha256:ab", ""},
		{"", "registry.example.com/dcgm:4.4.1", "", "registry.example.com/dcgm:4.4.1", ""},
		{"nvcr.io/nvidia", "dcgm", "", "", "has no effect without"},
		{"nvcr.io/nvidia", "", "4.4.1", "", "has no effect without"},
	}
	for _, test := range tests {
		result := converted(t, []Source{{"dcgm": map[string]any{"repository": test.repository, "image": test.image, "version": test.version}}})
		var printed strings.Builder
		for _, note := range result.Notes {
			printed.WriteString(note.Reason)
		}
		if got := result.Policy.Spec.DCGM.Image; got != test.want || !strings.Contains(printed.String(), test.note) || test.note == "" && printed.Len() > 0 {
			t.Errorf("%+v becomes %q with %q", test, got, printed.String())
		}
	}
	drivers := []struct{ repository, image, version, wantImage, wantVersion, note string }{
		{"nvcr.io/nvidia", "driver", "580.95.05", "nvcr.io/nvidia/driver", "580.95.05", ""},
		{"nvcr.io/nvidia", "driver", "580.95.05-ubuntu22.04", "nvcr.io/nvidia/driver", "580.95.05", ""},
		{"nvcr.io/nvidia", "driver", "sha256:ab", "nvcr.io/nvidia/driver@sha256:ab", "", ""},
		{"", "registry.example.com:5000/driver:580.95.05", "", "registry.example.com:5000/driver", "580.95.05", ""},
		{"", "registry.example.com/driver@sha256:ab", "", "registry.example.com/driver@sha256:ab", "", ""},
		{"", "", "580", "", "580", ""},
		{"nvcr.io/nvidia", "driver", "latest", "nvcr.io/nvidia/driver", "", "is not a driver version"},
	}
	for _, test := range drivers {
		result := converted(t, []Source{{"driver": map[string]any{"repository": test.repository, "image": test.image, "version": test.version}}})
		var printed strings.Builder
		for _, note := range result.Notes {
			printed.WriteString(note.Reason)
		}
		got := result.Policy.Spec.Driver
		if got.Image != test.wantImage || got.Version != test.wantVersion || !strings.Contains(printed.String(), test.note) || test.note == "" && printed.Len() > 0 {
			t.Errorf("%+v becomes %q, %q with %q", test, got.Image, got.Version, printed.String())
		}
	}
}

// fields are what the source decides.
func (s Source) fields() map[string]any {
	if spec, ok := s["spec"].(map[string]any); ok && s["kind"] != nil {
		return spec
	}
	return s
}

// leaves are the paths of everything that is no object, or an empty one. The layouts of a MIG configuration are one each.
func leaves(object map[string]any, prefix []string) [][]string {
	var all [][]string
	for _, key := range keys(object) {
		path := append(slices.Clone(prefix), key)
		if inner, ok := object[key].(map[string]any); ok && len(inner) > 0 {
			all = append(all, leaves(inner, path)...)
		} else {
			all = append(all, path)
		}
	}
	return all
}

// value is the value at the path.
func (s Source) value(path []string) any {
	var value any = s.fields()
	for _, name := range path {
		value = value.(map[string]any)[name]
	}
	return value
}

func without(t *testing.T, source Source, path []string) Source {
	t.Helper()
	text, err := json.Marshal(source)
	if err != nil {
		t.Fatal(err)
	}
	var copied Source
	if err := json.Unmarshal(text, &copied); err != nil {
		t.Fatal(err)
	}
	object := copied.fields()
	for _, name := range path[:len(path)-1] {
		object = object[name].(map[string]any)
	}
	delete(object, path[len(path)-1])
	return copied
}

// objects is what a result is without its notes.
func objects(t *testing.T, result Result) string {
	t.Helper()
	result.Notes = nil
	var out bytes.Buffer
	if err := result.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func read(t *testing.T, files []string) []Source {
	t.Helper()
	var documents [][]byte
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, bytes.Split(text, []byte("\n---\n"))...)
	}
	sources, err := Read(documents)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func converted(t *testing.T, sources []Source) Result {
	t.Helper()
	result, err := Convert(sources...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestVGPUDeviceManagerDefaults checks the defaults of the GPU Operator: a ClusterPolicy without the field has no device manager
// (api/nvidia/v1/clusterpolicy_types.go:2325-2331), the chart enables it (deployments/gpu-operator/values.yaml:487), and the ConfigMap of the operator's name is
// the default (controllers/object_controls.go:155,2274).
func TestVGPUDeviceManagerDefaults(t *testing.T) {
	t.Parallel()
	spec := func(devices map[string]any) map[string]any {
		return map[string]any{
			"sandboxWorkloads": map[string]any{"enabled": true}, "vgpuManager": map[string]any{"enabled": true, "image": "registry.example.com/vgpu-manager:580"},
			"vgpuDeviceManager": devices,
		}
	}
	policy := func(devices map[string]any) Source {
		return Source{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec(devices)}
	}
	for name, test := range map[string]struct {
		source    Source
		enabled   bool
		configMap string
	}{
		"a ClusterPolicy without the field": {policy(map[string]any{}), false, ""},
		"a ClusterPolicy with it":           {policy(map[string]any{"enabled": true}), true, ""},
		"values without the field":          {Source(spec(map[string]any{})), true, ""},
		"values that disable it":            {Source(spec(map[string]any{"enabled": false})), false, ""},
		"the operator's ConfigMap":          {policy(map[string]any{"enabled": true, "config": map[string]any{"name": "default-vgpu-devices-config"}}), true, ""},
		"another ConfigMap":                 {policy(map[string]any{"enabled": true, "config": map[string]any{"name": "own"}}), true, "own"},
	} {
		got := converted(t, []Source{test.source}).Policy.Spec.Complete()
		if !got.VGPUManager.Chosen() || got.VGPUDeviceManager.On() != test.enabled || got.VGPUDeviceManager.Config.Name != test.configMap {
			t.Errorf("%s: %+v", name, got.VGPUDeviceManager)
		}
	}
}
