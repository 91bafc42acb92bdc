package verify

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outputs is the folder that benchmarks write; it is not in the repository.
const outputs = "bench/out/"

// quoted matches a text in backticks that can be a path: at least two elements, without spaces, placeholders or a domain.
var quoted = regexp.MustCompile("`([\\w.-]+(?:/[\\w.*{},-]+)+/?)(?:#[\\w-]+)?`")

// TestPagesNamePathsThatExist checks every text in backticks in Markdown that begins with a top folder of the repository: the file or folder must
// exist below the root or next to the page. A * matches as in a shell.
func TestPagesNamePathsThatExist(t *testing.T) {
	checked := 0
	files(t, func(page, text string) {
		for _, named := range namedPaths(t, text) {
			checked++
			if !existsBelow(t, root(t), named) && !existsBelow(t, filepath.Join(root(t), path.Dir(page)), named) {
				t.Errorf("%s names %s, which does not exist", page, named)
			}
		}
	}, ".md")
	if checked < 100 {
		t.Errorf("%d paths were found: the pages or this test have changed", checked)
	}
}

// namedPaths returns the paths in backticks whose first element is a top folder of the repository.
func namedPaths(t *testing.T, text string) []string {
	t.Helper()
	var paths []string
	for _, found := range quoted.FindAllStringSubmatch(text, -1) {
		first, _, _ := strings.Cut(found[1], "/")
		if info, err := os.Stat(filepath.Join(root(t), first)); err == nil && info.IsDir() && first != "bin" && first != "." && first != ".." && !strings.HasPrefix(found[1], outputs) {
			paths = append(paths, found[1])
		}
	}
	return paths
}

// existsBelow reports whether a path with optional wildcards, and alternatives in braces, exists in the folder. All alternatives must exist.
func existsBelow(t *testing.T, folder, name string) bool {
	t.Helper()
	for _, one := range alternatives(name) {
		matches, err := filepath.Glob(filepath.Join(folder, one))
		if err != nil {
			t.Fatal(err)
		}
		if len(matches) == 0 {
			return false
		}
	}
	return true
}

// alternatives expands one pair of braces: a/{b,c}/d is a/b/d and a/c/d.
func alternatives(name string) []string {
	before, rest, braces := strings.Cut(name, "{")
	inner, after, closed := strings.Cut(rest, "}")
	if !braces || !closed {
		return []string{name}
	}
	var all []string
	for _, one := range strings.Split(inner, ",") {
		all = append(all, before+one+after)
	}
	return all
}

// placed matches names in backticks and the file that contains them: `A`, `B()` in `path/file.go`, `object` in `path/file.yaml`, `target` in `Makefile`.
var placed = regexp.MustCompile("((?:`[\\w.-]+(?:\\(\\))?`(?:, | and )?)+) in `([\\w./-]+\\.(?:go|c|h|yaml|tpl)|Makefile)`")

// TestPagesNameWhatFilesContain checks every name that a page places in a file: the last element of `Type.method()` must be a word of the file.
// The name of an object or template in YAML must be there as a whole.
func TestPagesNameWhatFilesContain(t *testing.T) {
	checked := 0
	files(t, func(page, text string) {
		for _, match := range placed.FindAllStringSubmatch(text, -1) {
			source, err := os.ReadFile(filepath.Join(root(t), match[2]))
			if err != nil {
				continue // TestPagesNamePathsThatExist reports it
			}
			for name := range strings.FieldsFuncSeq(match[1], func(r rune) bool { return strings.ContainsRune("`(), ", r) }) {
				if name == "and" {
					continue
				}
				checked++
				last := name
				if ext := path.Ext(match[2]); ext != ".yaml" && ext != ".tpl" {
					last = name[strings.LastIndex(name, ".")+1:]
				}
				if !regexp.MustCompile(`\b` + regexp.QuoteMeta(last) + `\b`).Match(source) {
					t.Errorf("%s places %s in %s, which does not contain it", page, name, match[2])
				}
			}
		}
	}, ".md")
	if checked < 100 {
		t.Errorf("%d names were found: the pages or this test have changed", checked)
	}
}

// TestRowsOfWhereNameAFile checks that every row of the tables in docs/dev/where-*.md has a file or folder in its last cell.
func TestRowsOfWhereNameAFile(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (.+) \|(.*)\|$`)
	files(t, func(page, text string) {
		if !strings.HasPrefix(page, "docs/dev/where-") {
			return
		}
		for _, found := range row.FindAllStringSubmatch(text, -1) {
			if found[1] != "what" && !strings.Contains(found[2], "`") {
				t.Errorf("%s: %q names no file", page, found[1])
			}
		}
	}, ".md")
}

func TestNamedPaths(t *testing.T) {
	text := "`api/gpu`, `api/nothing/x.go`, [`docs/README.md#documentation`](x), `nvidia.com/gpu`, `cmd`, `bench/<name>.json`, `e2e/{env,fake}/`, `installer/*/doc.go`"
	got := namedPaths(t, text)
	want := []string{"api/gpu", "api/nothing/x.go", "docs/README.md", "e2e/{env,fake}/", "installer/*/doc.go"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	for name, exists := range map[string]bool{"api/gpu": true, "api/nothing/x.go": false, "e2e/{env,fake}/": true, "e2e/{env,none}": false, "installer/*/doc.go": true} {
		if existsBelow(t, root(t), name) != exists {
			t.Errorf("%s: exists %t, want %t", name, !exists, exists)
		}
	}
}
