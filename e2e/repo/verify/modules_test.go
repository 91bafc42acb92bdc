package verify

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestClusterSharesDependencies compares the versions of the modules that both the product and the lab's Kubernetes require. With equal versions, Go's
// build cache compiles client-go, apimachinery and apiserver once for both, which saves minutes of a first build.
func TestClusterSharesDependencies(t *testing.T) {
	product, cluster := requirements(t, "go.mod"), requirements(t, "e2e/env/lab/modules/kubernetes/go.mod")
	shared := 0
	for module, version := range cluster {
		ours, found := product[module]
		if !found {
			continue
		}
		shared++
		if ours != version {
			t.Errorf("%s: go.mod requires %s, e2e/env/lab/modules/kubernetes/go.mod %s; `go get %s@%s` there", module, ours, version, module, ours)
		}
	}
	if shared < 50 {
		t.Errorf("found %d modules that both require; go.mod is not read as it is written", shared)
	}
}

// requirement matches a requirement in a go.mod file.
var requirement = regexp.MustCompile(`(?m)^(?:require |\t)(\S+) (v\S+)`)

// requirements returns the versions of the modules that a go.mod file requires, by path.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(text), -1) {
		versions[match[1]] = match[2]
	}
	return versions
}
