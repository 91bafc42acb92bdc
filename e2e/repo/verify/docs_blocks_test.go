package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	blocks "github.com/tessera-gpu/tessera/e2e/env/pages"
)

// TestBlocksAreExecuted checks that tests execute the blocks of the pages: a test runs the commands of each page, other tests of this package take manifests
// and values. At most a tenth of the blocks has a reason why not, and none in the quickstart and the tasks.
func TestBlocksAreExecuted(t *testing.T) {
	runners, values := runnersOfPages(t), keysOfValues(t)
	executed, skipped := 0, 0
	pages(t, func(page, text string) {
		if !strings.HasPrefix(page, "docs/") || strings.HasPrefix(page, "docs/dev/") {
			return
		}
		runs, not := blocks.Count(text)
		executed, skipped = executed+runs, skipped+not
		for i, block := range blocks.Blocks(text) {
			switch {
			case !block.IsInput():
			case block.NotExecuted != "" && (page == "docs/quickstart.md" || strings.HasPrefix(page, "docs/tasks/")):
				t.Errorf("%s, block %d: must be executed", page, i+1)
			case block.NotExecuted != "":
			case block.Language == "" && !strings.Contains(runners, `"`+strings.TrimPrefix(page, "docs/")+`"`) && !strings.Contains(runners, `"`+page+`"`):
				t.Errorf("%s has commands, and no test in e2e/tests runs the page", page)
			case block.Language == "yaml" && !strings.Contains(block.Text, "kind: ") && !values.haveAll(block.Text) && !strings.Contains(runners, page):
				t.Errorf("%s, block %d: neither a manifest nor values of the chart, and no reason why it is not executed", page, i+1)
			}
		}
	})
	t.Logf("tests execute %d of %d blocks", executed, executed+skipped)
	if executed < 50 || 10*skipped > executed+skipped {
		t.Errorf("tests execute %d of %d blocks, want nine tenths", executed, executed+skipped)
	}
}

// runnersOfPages returns the text of the tests that run pages.
func runnersOfPages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	files(t, func(path, text string) {
		if strings.HasPrefix(path, "e2e/tests/") && strings.HasSuffix(path, "_test.go") && strings.Contains(text, "pages.Steps(") {
			all.WriteString(text)
		}
	}, ".go")
	if all.Len() == 0 {
		t.Fatal("no test runs pages")
	}
	return all.String()
}

// valueKeys are the keys of the chart's values.
type valueKeys map[string]any

func keysOfValues(t *testing.T) valueKeys {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "deployments/helm/tessera/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var keys valueKeys
	if err := yaml.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	return keys
}

// haveAll reports whether a block has values of the chart: it has no other keys, and TestPagesShowValuesThatTheChartTakes renders it.
func (k valueKeys) haveAll(block string) bool {
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(block), &keys); err != nil || len(keys) == 0 {
		return false
	}
	for key := range keys {
		if _, found := k[key]; !found {
			return false
		}
	}
	return true
}
