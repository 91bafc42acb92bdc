package render_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/installer/render"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGolden(t *testing.T) {
	for name, in := range map[string]render.Input{"default": plain(), "everything": everything(), "simulated": simulated()} {
		t.Run(name, func(t *testing.T) {
			got := text(t, objects(t, in))
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s is not what is rendered (go test ./installer/render -update writes it): -want +got\n%s", path, diff)
			}
		})
	}
}

func objects(t testing.TB, in render.Input) []client.Object {
	t.Helper()
	all, err := render.Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// text returns the objects as YAML documents.
func text(t testing.TB, all []client.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, object := range all {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}
