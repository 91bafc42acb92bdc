package gpus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// schemaTree returns schema.json with all references resolved.
func schemaTree(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	definitions, ok := root["definitions"].(map[string]any)
	if !ok {
		t.Fatal("schema.json has no definitions")
	}
	var expand func(any) any
	expand = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				return expand(definitions[strings.TrimPrefix(ref, "#/definitions/")])
			}
			expanded := map[string]any{}
			for key, value := range v {
				if key != "definitions" && key != "$schema" {
					expanded[key] = expand(value)
				}
			}
			return expanded
		case []any:
			var expanded []any
			for _, value := range v {
				expanded = append(expanded, expand(value))
			}
			return expanded
		}
		return v
	}
	tree, ok := expand(root).(map[string]any)
	if !ok {
		t.Fatal("schema.json is not an object")
	}
	return tree
}

// validationErrors validates the JSON against the schema.
func validationErrors(t *testing.T, answer []byte) []error {
	t.Helper()
	text, err := json.Marshal(schemaTree(t))
	if err != nil {
		t.Fatal(err)
	}
	var schema spec.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(answer, &value); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(&schema, nil, "", strfmt.Default).Validate(value).Errors
}

// TestSchemaAccepts validates the output for every scene of the tests.
func TestSchemaAccepts(t *testing.T) {
	scenes := map[string]*clustertest.Scene{"empty": clustertest.New(t), "everyday": clustertest.Everyday(t), "tainted": clustertest.Everyday(t), "reported": clustertest.Everyday(t)}
	addForeignTaints(scenes["tainted"])
	addReportedFaults(scenes["reported"])
	every := clustertest.New(t)
	for _, machine := range []string{"a30x4l40sx4", "a100-40x2", "rtxpro6000x4", "mixed16"} {
		every.Node(machine, machine, nil)
	}
	scenes["machines"] = every
	for name, s := range scenes {
		var out bytes.Buffer
		if err := run(t.Context(), s.Cluster(), request{answer: output.Flags{Format: output.JSON, Color: "auto"}, out: &out}); err != nil {
			t.Fatal(err)
		}
		if errs := validationErrors(t, out.Bytes()); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestSchemaRejects checks that the schema rejects changed output.
func TestSchemaRejects(t *testing.T) {
	good, err := os.ReadFile(filepath.Join("testdata", "everyday.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"kind": "GPUList"`, `"kind": "List"`}, {`"shape": "idle"`, `"shape": "monitor"`}, {`"index": 0`, `"index": "0"`},
		{`"product"`, `"produkt"`}, {`"device": "gpu-`, `"devise": "gpu-`}, {`"total": 8`, `"total": 0`},
	} {
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if bad == string(good) || len(validationErrors(t, []byte(bad))) == 0 {
			t.Errorf("%s for %s: accepted", change[1], change[0])
		}
	}
}

// TestSchemaIsComplete compares the schema with the Go types, field by field.
func TestSchemaIsComplete(t *testing.T) {
	compare(t, "GPUList", reflect.TypeFor[List](), schemaTree(t))
}

func compare(t *testing.T, at string, goType reflect.Type, schema map[string]any) {
	t.Helper()
	kind := goType.Kind()
	if kind == reflect.Pointer {
		compare(t, at, goType.Elem(), schema)
		return
	}
	if kind == reflect.Slice {
		items, ok := schema["items"].(map[string]any)
		if !ok || schema["type"] != "array" {
			t.Errorf("%s: the schema has no array", at)
			return
		}
		compare(t, at+"[]", goType.Elem(), items)
		return
	}
	if kind == reflect.Struct && goType != reflect.TypeFor[metav1.Time]() {
		properties, ok := schema["properties"].(map[string]any)
		if !ok || schema["additionalProperties"] != false {
			t.Errorf("%s: the schema has no object with additionalProperties: false", at)
			return
		}
		var names, required, known, demanded []string
		for name, field := range fields(goType) {
			names = append(names, name)
			if !strings.Contains(field.Tag.Get("json"), "omitempty") || goType == reflect.TypeFor[List]() && (name == "kind" || name == "apiVersion") {
				required = append(required, name)
			}
			property, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s: not in the schema", at, name)
				continue
			}
			compare(t, at+"."+name, field.Type, property)
		}
		for name := range properties {
			known = append(known, name)
		}
		if list, ok := schema["required"].([]any); ok {
			for _, name := range list {
				demanded = append(demanded, name.(string))
			}
		}
		for what, pair := range map[string][2][]string{"properties": {names, known}, "required": {required, demanded}} {
			slices.Sort(pair[0])
			slices.Sort(pair[1])
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Errorf("%s: %s (-Go +schema):\n%s", at, what, diff)
			}
		}
		return
	}
	want := "integer"
	if kind == reflect.String || kind == reflect.Struct {
		want = "string"
	}
	if schema["type"] != want {
		t.Errorf("%s: %v in the schema, must be %s", at, schema["type"], want)
	}
}

// fields returns the fields of the struct by their names in JSON; embedded structs included.
func fields(goType reflect.Type) map[string]reflect.StructField {
	all := map[string]reflect.StructField{}
	for field := range goType.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			for inner, f := range fields(field.Type) {
				all[inner] = f
			}
			continue
		}
		all[name] = field
	}
	return all
}
