package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// repository has a home page, an index with two sections, pages that link to each other, an image, and a page for contributors.
func repository() fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"README.md": file("# Name\n\nRead [more](docs/README.md), [first](docs/first.md#part) and [api](api/README.md).\n"),
		"docs/README.md": file("# Documentation\n\n## Get started\n\n| page | for | content |\n|---|---|---|\n| [first.md](first.md) | all | the first |\n\n## Tasks\n\n" +
			"| page | for | content |\n|---|---|---|\n| [tasks/second.md](tasks/second.md) | all | the second |\n\n[dev](dev/README.md)\n"),
		"docs/first.md":        file("# The first page\n\n![drawing](images/a.svg) [second](tasks/second.md) [web](https://example.com/x.md) [here](#part)\n\n## Part\n"),
		"docs/tasks/second.md": file("<!-- Written by x. -->\n\n# The second\n\n[first](../first.md#part) [file](../../deployments/x.yaml) [self](#end)\n\n```\nmake x\n```\n\n<!-- not executed: no -->\n```\nmake y\n```\n"),
		"docs/dev/README.md":   file("# Contributors\n"),
		"docs/images/a.svg":    file("<svg/>"),
	}
}

func TestPlan(t *testing.T) {
	plan, err := readPlan(repository())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := plan.write(folder, "v1"); err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][]string{
		"_index.md":             {"title: Name", "[more](./)", "[first](./get-started/first/#part)", "[api](https://github.com/tessera-gpu/tessera/blob/v1/api/README.md)"},
		"get-started/_index.md": {"title: Get started", "- [The first page](first/): the first"},
		"get-started/first.md":  {"title: The first page", "![drawing](../../images/a.svg)", "[second](../../tasks/second/)", "(https://example.com/x.md)", "[here](#part)"},
		"tasks/second.md":       {"weight: 5", "title: The second", "[first](../../get-started/first/#part)", "blob/v1/deployments/x.yaml)"},
		"images/a.svg":          {"<svg/>"},
	} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q:\n%s", name, part, text)
			}
		}
	}
	if got, want := plan.blocks(), "tests execute 1 of 2 blocks of commands and YAML"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, change := range map[string]struct {
		file, text, want string
	}{
		"a page that the index lacks": {"docs/third.md", "# Third\n", "docs/third.md 0 times"},
		"a page without heading":      {"docs/first.md", "text\n", "docs/first.md does not begin"},
		"a page that does not exist":  {"docs/README.md", "## Tasks\n\n| [x.md](x.md) | all | x |\n", "docs/x.md"},
	} {
		files := repository()
		files[change.file] = &fstest.MapFile{Data: []byte(change.text)}
		if _, err := readPlan(files); err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, change.want)
		}
	}
}
