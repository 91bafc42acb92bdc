package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
	"github.com/tessera-gpu/tessera/e2e/tests/corpus"
)

// deployments is the folder of Tessera's manifests.
const deployments = "../../../deployments"

// tessera runs the verb with the arguments and returns its output.
func tessera(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	cmd := Command()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestReports(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		// golden is the file with the output, failure the error.
		golden, failure string
	}{
		"text":         {[]string{"-f", "testdata/mixed.yaml", "-f", "testdata/older.yaml"}, "report.txt", "7 of 11 objects are invalid"},
		"JSON":         {[]string{"-f", "testdata/mixed.yaml,testdata/older.yaml", "-o", "json"}, "report.json", "7 of 11 objects are invalid"},
		"another name": {[]string{"-f", "testdata/mixed.yaml", "--driver", "gpu.example.com"}, "other-driver.txt", "3 of 8 objects are invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := tessera(t, "", test.args...)
			if (err == nil) != (test.failure == "") || err != nil && err.Error() != test.failure {
				t.Errorf("error %v, want %q", err, test.failure)
			}
			outputtest.Golden(t, test.golden, out)
		})
	}
}

// TestShippedManifests checks that Tessera's own manifests are valid.
func TestShippedManifests(t *testing.T) {
	if out, err := tessera(t, "", "-f", deployments, "-f", filepath.Join(deployments, "examples")); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestInput(t *testing.T) {
	claim := `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"a"},"spec":{}}`
	for name, test := range map[string]struct {
		in   string
		args []string
		// out is the output, failure is contained in the error.
		out, failure string
	}{
		"standard input":    {claim, []string{"-f", "-"}, "-, document 1: ResourceClaim a: ok\n", ""},
		"no supported kind": {"kind: Pod\napiVersion: v1\n", []string{"-f", "-"}, "", "nothing to check: no ResourceClaim"},
		"nothing":           {"", []string{"-f", "-"}, "", "nothing to check"},
		"no file":           {"", []string{}, "", "name a file or a folder with -f"},
		"missing file":      {"", []string{"-f", "testdata/no-such"}, "", "no such file"},
		"an argument":       {"", []string{"claim.yaml"}, "", `unknown command "claim.yaml"`},
		"another format":    {claim, []string{"-f", "-", "-o", "xml"}, "", `--output "xml": must be one of text, json`},
		"not YAML":          {"a: [", []string{"-f", "-"}, "-, document 1: unreadable: invalid\n  invalid YAML: yaml: line 1: did not find expected node content\n", "1 of 1 objects are invalid"},
		"another shape":     {`{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","spec":[]}`, []string{"-f", "-"}, "-, document 1: ResourceClaim: invalid\n  json: cannot unmarshal array into Go struct field ResourceClaim.spec of type v1.ResourceClaimSpec\n", "1 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := tessera(t, test.in, test.args...)
			if (err == nil) != (test.failure == "") || err != nil && !strings.Contains(err.Error(), test.failure) {
				t.Errorf("error %v, want %q", err, test.failure)
			}
			if diff := cmp.Diff(test.out, out); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCorpus checks the verb against the corpus, which is also the test of the admission policy.
func TestCorpus(t *testing.T) {
	cases, err := corpus.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 60 {
		t.Errorf("%d cases, want at least 60", len(cases))
	}
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("duplicate case %q", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			claim, failed := c.Claim()
			template, failedTemplate := c.Template()
			class, failedClass := c.DeviceClass()
			if err := errors.Join(failed, failedTemplate, failedClass); err != nil {
				t.Fatal(err)
			}
			for _, object := range []runtime.Object{claim, template, class} {
				_, isClass := object.(*resourceapi.DeviceClass)
				if isClass && c.Class != "" {
					continue // the case is about what a claim requests
				}
				raw, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				report := checkDocuments([]document{{file: "corpus", number: 1, raw: raw}}, []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName})
				var problems strings.Builder
				for _, problem := range report.Items[0].Problems {
					problems.WriteString(problem.Field + ": " + problem.Message + "\n")
				}
				if got, want := problems.String(), c.Refusal(isClass); (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%T: %q, want %q", object, got, want)
				}
			}
		})
	}
}

// TestShippedClasses checks that the shapes of Tessera's classes are derived from their names.
func TestShippedClasses(t *testing.T) {
	documents, err := readDocuments([]string{filepath.Join(deployments, "deviceclasses.yaml"), filepath.Join(deployments, "deviceclasses-profiles.yaml")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	known, unknown := checker{classes: map[string]resourceapi.DeviceClass{}}, checker{}
	for _, d := range documents {
		known.addClass(d)
	}
	if len(known.classes) < 10 {
		t.Fatalf("%d classes are shipped", len(known.classes))
	}
	for name := range known.classes {
		want, ok := known.selected(name)
		got, guessed := unknown.selected(name)
		if !ok || !guessed || got.shape != want.shape {
			t.Errorf("%s: by its name %+v, %t, by its selector %+v, %t", name, got, guessed, want, ok)
		}
	}
	for _, name := range []string{"gpu.example.com", "tessera.dev", "fast.tessera.dev", "gpu.fast.tessera.dev", ""} {
		if got, ok := unknown.selected(name); ok {
			t.Errorf("%s: %+v, want nothing", name, got)
		}
	}
}

// TestSelectors checks which shape is derived from the selectors of a class.
func TestSelectors(t *testing.T) {
	const migs = `device.attributes["gpu.tessera.dev"].type == "mig"`
	for expression, want := range map[string]string{
		migs: "mig",
		"device.driver == 'gpu.tessera.dev' && " + migs + " && device.attributes['gpu.tessera.dev'].profile != '1g.10gb'": "mig",
		migs + " || device.attributes['gpu.tessera.dev'].type == 'gpu'":                                                   "idle",
		"!(" + migs + ")":                        "idle",
		"true":                                   "idle",
		strings.Replace(migs, "mig", "other", 1): "idle",
	} {
		class := resourceapi.DeviceClass{Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}}}
		got, ok := checker{classes: map[string]resourceapi.DeviceClass{"c": class}}.selected("c")
		if got.shape.String() != want || ok != (want != "idle") {
			t.Errorf("%s: %+v, %t, want %s", expression, got, ok, want)
		}
	}
}
