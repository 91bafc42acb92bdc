package crds

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// TestValid validates the CRDs like the API server, including the cost of their rules.
func TestValid(t *testing.T) {
	t.Parallel()
	list, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 {
		t.Errorf("%d CRDs, want ClusterPolicy, NVIDIADriver and GPUNode", len(list))
	}
	for _, crd := range list {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{"v1alpha1"}
		for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", crd.Name, problem)
		}
	}
}

// TestShortNamesAreUnambiguous compares the short names with all names of the GPU Operator's kinds, whose CRDs may be installed at the same time, and
// with each other.
func TestShortNamesAreUnambiguous(t *testing.T) {
	t.Parallel()
	list, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{}
	for _, name := range []string{"clusterpolicy", "clusterpolicies", "nvidiadriver", "nvidiadrivers", "nvd", "nvdriver", "nvdrivers", "gpucluster", "gpuclusters", "gc"} {
		taken[name] = "the GPU Operator"
	}
	for _, crd := range list {
		if len(crd.Spec.Names.ShortNames) == 0 {
			t.Errorf("%s has no short name", crd.Name)
		}
		for _, name := range crd.Spec.Names.ShortNames {
			if owner, is := taken[name]; is {
				t.Errorf("%s: the short name %s is one of %s", crd.Name, name, owner)
			}
			taken[name] = crd.Name
		}
	}
}

// TestChartInstallsTheSameFiles compares the embedded CRDs with those of the chart: both are written by one generator.
func TestChartInstallsTheSameFiles(t *testing.T) {
	t.Parallel()
	chart := os.DirFS("../../deployments/helm/tessera/crds")
	embedded, err := fs.Glob(files, "*")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := fs.Glob(chart, "*")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(embedded, installed); diff != "" {
		t.Fatalf("files (-embedded +chart):\n%s", diff)
	}
	for _, name := range embedded {
		want, errEmbedded := fs.ReadFile(files, name)
		got, errChart := fs.ReadFile(chart, name)
		if err := errors.Join(errEmbedded, errChart); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s differs between installer/crds and the chart: run make generate", name)
		}
	}
}

// TestHash checks that a CRD's annotation is the hash of the schema in the file and changes with it.
func TestHash(t *testing.T) {
	t.Parallel()
	list, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range list {
		if got := hash(t, crd); got != crd.Annotations[HashAnnotation] {
			t.Errorf("%s: annotation %s, hash of the spec %s", crd.Name, crd.Annotations[HashAnnotation], got)
		}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Required = []string{"spec"}
		if hash(t, crd) == crd.Annotations[HashAnnotation] {
			t.Errorf("%s: another schema has the same hash", crd.Name)
		}
	}
}

func hash(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) string {
	t.Helper()
	content, err := json.Marshal(crd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// TestFields checks samples of each kind of field.
func TestFields(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, part, path, typed string
		leaf                    bool
	}{
		{"ClusterPolicy", "spec", "spec.driver", "object", false},
		{"ClusterPolicy", "spec", "spec.driver.rdma.enabled", "boolean", true},
		{"ClusterPolicy", "spec", "spec.driver.resources", "resources", true},
		{"ClusterPolicy", "spec", "spec.dcgm.tolerations", "list of toleration", true},
		{"ClusterPolicy", "spec", "spec.dcgm.env", "list of environment variable", true},
		{"ClusterPolicy", "spec", "spec.daemonSets.labels", "map of text", true},
		{"ClusterPolicy", "spec", "spec.nodeAgent.pools", "list of object", false},
		{"ClusterPolicy", "spec", "spec.nodeAgent.pools[].nodeSelector", "label selector", true},
		{"ClusterPolicy", "spec", "spec.nodeAgent.pools[].config.shapes", "list of text", true},
		{"ClusterPolicy", "spec", "spec.upgrade.canary", "integer or percentage", true},
		{"ClusterPolicy", "spec", "spec.upgrade.soak", "duration", true},
		{"ClusterPolicy", "status", "status.plan.waves[].nodes", "list of text", true},
		{"ClusterPolicy", "status", "status.conditions", "list of condition", true},
		{"NVIDIADriver", "spec", "spec.default", "boolean", true},
		{"GPUNode", "status", "status.since", "time", true},
	}
	for _, test := range tests {
		fields, err := Fields(test.kind, test.part)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Path == test.path })
		if i < 0 {
			t.Errorf("%s has no field %s", test.kind, test.path)
			continue
		}
		if fields[i].Type != test.typed || fields[i].Leaf != test.leaf {
			t.Errorf("%s is %+v, want the type %s, leaf %t", test.path, fields[i], test.typed, test.leaf)
		}
	}
	if _, err := Fields("Pod", "spec"); err == nil {
		t.Error("a foreign kind has fields")
	}
	if _, err := Fields("GPUNode", "data"); err == nil {
		t.Error("GPUNode has data")
	}
}

// TestEveryFieldIsDocumented checks that each field of our types has a description.
func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ClusterPolicy", "NVIDIADriver", "GPUNode"} {
		for _, part := range []string{"spec", "status"} {
			fields, err := Fields(kind, part)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range fields {
				if field.Description == "" {
					t.Errorf("%s: %s has no comment in api/v1alpha1; add units, default and effect", kind, field.Path)
				}
			}
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	list, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	release := list[0]
	changed := func(change func(spec map[string]apiextensionsv1.JSONSchemaProps)) *apiextensionsv1.CustomResourceDefinition {
		crd := release.DeepCopy()
		crd.Annotations[HashAnnotation] = "of another release"
		change(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties)
		return crd
	}
	tests := map[string]struct {
		cluster *apiextensionsv1.CustomResourceDefinition
		want    Difference
	}{
		"the same": {release.DeepCopy(), Difference{Same: true}},
		"older": {changed(func(spec map[string]apiextensionsv1.JSONSchemaProps) {
			delete(spec, "readinessTaint")
			delete(spec["nodeAgent"].Properties["pools"].Items.Schema.Properties, "migMode")
		}), Difference{Missing: []string{"spec.nodeAgent.pools[].migMode", "spec.readinessTaint"}}},
		"newer": {changed(func(spec map[string]apiextensionsv1.JSONSchemaProps) {
			spec["driver"].Properties["later"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}), Difference{Unknown: []string{"spec.driver.later"}}},
		"other words": {changed(func(map[string]apiextensionsv1.JSONSchemaProps) {}), Difference{}},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, Compare(test.cluster, release)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
