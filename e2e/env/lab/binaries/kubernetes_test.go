package binaries

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKubernetesVersion(t *testing.T) {
	for value, want := range map[string]string{"": "1.37", "1.37": "1.37", "1.36": "1.36"} {
		t.Setenv(KubernetesVariable, value)
		if got, err := KubernetesVersion(); got != want || err != nil {
			t.Errorf("%s=%q: %q, %v; want %q", KubernetesVariable, value, got, err, want)
		}
	}
	for _, value := range []string{"1.35", "v1.36", "1.36.5", "136"} {
		t.Setenv(KubernetesVariable, value)
		if _, err := Families(); err == nil || !strings.Contains(err.Error(), "1.37, 1.36") {
			t.Errorf("%s=%q: %v; want an error with the valid values", KubernetesVariable, value, err)
		}
	}
}

// TestKubernetesModules checks that each selectable version has a module of this version, and programs in a folder that no other version has.
func TestKubernetesModules(t *testing.T) {
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, version := range KubernetesVersions() {
		t.Setenv(KubernetesVariable, version)
		families, err := Families()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(families, func(f Family) bool { return f.Name == Kubernetes })
		if i < 0 {
			t.Fatalf("%s: no family %s", version, Kubernetes)
		}
		p, err := families[i].pin(t.Context(), filepath.Join(source, "e2e", "env", "lab", "modules"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.version, "v"+version+".") {
			t.Errorf("%s: the module %s requires %s", version, p.folder, p.version)
		}
		if slices.Contains(keys, p.key) {
			t.Errorf("%s has the folder %s of another version", version, p.key)
		}
		keys = append(keys, p.key)
	}
}
