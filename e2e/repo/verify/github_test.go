package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWorkflowsMakeTargets checks that GitHub's workflows run targets of the Makefile. actionlint checks everything else in `make verify-lint`.
func TestWorkflowsMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root(t), ".github/workflows/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	targets := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^.*run: .*\bmake (.*)$`).FindAllSubmatch(text, -1) {
			for target := range strings.FieldsSeq(string(line[1])) {
				targets++
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
					t.Errorf("%s: the Makefile has no target %s", filepath.Base(file), target)
				}
			}
		}
	}
	if targets == 0 {
		t.Error("no workflow runs a target")
	}
}

// TestRenovateFindsTheOperands checks that the expression of renovate's configuration finds each image of NVIDIA's in the chart's values, with its version.
func TestRenovateFindsTheOperands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), ".github/renovate.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		CustomManagers []struct {
			ManagerFilePatterns, MatchStrings []string
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	manager := config.CustomManagers[0]
	const file = "deployments/helm/tessera/values.yaml"
	if pattern := strings.Trim(manager.ManagerFilePatterns[0], "/"); !regexp.MustCompile(pattern).MatchString(file) {
		t.Errorf("%s does not match %s", pattern, file)
	}
	values, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(manager.MatchStrings[0]).FindAllSubmatch(values, -1)
	if want := strings.Count(string(values), "nvcr.io/"); len(found) != want || want == 0 {
		t.Errorf("%d of %d images are found", len(found), want)
	}
	for _, image := range found {
		if !regexp.MustCompile(`^v?\d[\w.-]*$`).Match(image[2]) {
			t.Errorf("%s has the version %s", image[1], image[2])
		}
	}
}
