package main

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Each value has a row with its default and its comment; a mapping in braces is one value.
func TestListValues(t *testing.T) {
	const values = "# Images of\n# all | components.\nimages:\n  # The tag.\n  tag: dev\n  node: {repository: a, digest: b}\nempty: {}\nlist:\n- {key: a, operator: Exists}\n"
	const want = "| `images` |  | Images of all \\| components. |\n| `images.tag` | `dev` | The tag. |\n| `images.node` | `{digest: b, repository: a}` |  |\n" +
		"| `empty` | `{}` |  |\n| `list` | `[{key: a, operator: Exists}]` |  |\n"
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(values), &document); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := listValues(&page, "", document.Content[0]); err != nil {
		t.Fatal(err)
	}
	if page.String() != want {
		t.Errorf("got\n%s\nwant\n%s", page.String(), want)
	}
}
