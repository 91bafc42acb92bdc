package dialect

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	update = flag.Bool("update", false, "write the counts that fell to testdata/counts.txt")
	moved  = flag.Bool("moved", false, "with -update: a count may rise as far as the same count of other packages fell")
)

const (
	root      = "../../../.."
	countFile = "testdata/counts.txt"
)

// read are the files that are counted, by extension or name.
var read = []string{".go", ".md", ".yaml", ".yml", ".tpl", ".txt", ".json", ".sh", ".c", ".h", "Makefile", "run"}

func TestDialectOnlyFalls(t *testing.T) {
	words, err := readVocabulary("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	places, err := placesInRepository(t, words)
	if err != nil {
		t.Fatal(err)
	}
	now := count(places, len(words.groups))
	before, err := readTable(countFile, len(words.groups))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if len(before) == 0 { // the first time
			before = now
		}
		before = before.lowered(now, *moved)
		if err := os.WriteFile(countFile, []byte(before.text(words.groups)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	added := addedLines(t)
	for _, c := range compare(before, now) {
		group := words.groups[c.group]
		if c.now < c.before {
			t.Errorf("%s, %s: %d words of the group %s, %s has %d: run make generate", c.row, c.kind, c.now, group, countFile, c.before)
			continue
		}
		t.Errorf("%s, %s: %d words of the group %s, at most %d; name the object, call or event instead (e2e/repo/verify/dialect)", c.row, c.kind, c.now, group, c.before)
		for _, p := range places {
			if p.key() == c.key && p.group == c.group && added.has(p) {
				t.Logf("%s:%d: %s", p.file, p.line, p.text)
			}
		}
	}
}

// placesInRepository returns the words in all files that git lists.
func placesInRepository(t *testing.T, words *vocabulary) ([]place, error) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("list the files: %w", err)
	}
	var files []string
	for _, file := range strings.Split(string(list), "\x00") {
		if (slices.Contains(read, path.Ext(file)) || slices.Contains(read, path.Base(file))) && !strings.Contains(file, "testdata/") && !strings.HasPrefix(file, "docs/dev/surface") {
			files = append(files, file)
		}
	}
	found := make([][]place, len(files))
	problems := make([]error, len(files))
	var workers sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				text, err := os.ReadFile(filepath.Join(root, files[i]))
				if os.IsNotExist(err) { // deleted, and not yet committed
					continue
				}
				if err == nil {
					found[i], err = placesIn(words, files[i], string(text))
				}
				problems[i] = err
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, err := range problems {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

func TestDialectFindsWords(t *testing.T) {
	words, err := readVocabulary("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("testdata/sample.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	places, err := placesIn(words, "p/sample_test.go", string(source))
	if err != nil {
		t.Fatal(err)
	}
	const line = "besides tellGPUNode for ever."
	text, err := placesIn(words, "docs/page.md", "It is\n"+line+"\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range append(places, text...) {
		got = append(got, fmt.Sprintf("%s %s:%d %s", p.kind, p.file, p.line, words.groups[p.group]))
	}
	want := []string{
		"comments p/sample_test.go:1 tell", "comments p/sample_test.go:1 person", "comments p/sample_test.go:1 ask",
		"comments p/sample_test.go:8 hear", "identifiers p/sample_test.go:9 hear", "strings p/sample_test.go:9 say",
		"identifiers p/sample_test.go:12 illness",
		"identifiers p/sample_test.go:15 tell", "identifiers p/sample_test.go:15 illness",
		"identifiers p/sample_test.go:16 ask",
		"strings p/sample_test.go:18 archaic", "strings p/sample_test.go:18 say",
		"tests p/sample_test.go:23 person", "tests p/sample_test.go:23 forget",
		"tests p/sample_test.go:24 stand", "tests p/sample_test.go:25 ask", "strings p/sample_test.go:26 know",
		"text docs/page.md:2 beside", "text docs/page.md:2 tell", "text docs/page.md:2 archaic",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	if found, err := placesIn(words, "docs/made.md", "<!-- Generated from x by y; do not edit. -->\nNobody says so.\n"); err != nil || len(found) > 0 {
		t.Errorf("a generated file: got %v, %v, want nothing", found, err)
	}
	if found, err := placesIn(words, changelog, line+" `"+line+"`\n"); err != nil || len(found) != len(text) {
		t.Errorf("a line and the same in backticks in the changelog: got %v, %v, want the words of the first", found, err)
	}
}

func TestTableOnlyFalls(t *testing.T) {
	a, b, c := key{"a", comments}, key{"b", comments}, key{"c", comments}
	before := table{a: {5, 0}, b: {2, 1}}
	for _, test := range []struct {
		name  string
		now   table
		moved bool
		want  table
	}{
		{"fell", table{a: {3, 0}, b: {2, 0}}, false, table{a: {3, 0}, b: {2, 0}}},
		{"rose", table{a: {6, 0}, b: {1, 1}}, false, table{a: {5, 0}, b: {1, 1}}},
		{"package renamed", table{c: {5, 0}, b: {2, 1}}, false, table{c: {5, 0}, b: {2, 1}}},
		{"package renamed, and more", table{c: {6, 0}, b: {2, 1}}, false, table{c: {5, 0}, b: {2, 1}}},
		{"code moved", table{a: {1, 0}, b: {6, 1}}, true, table{a: {1, 0}, b: {6, 1}}},
		{"code moved, and more", table{a: {1, 0}, b: {8, 1}}, true, table{a: {1, 0}, b: {6, 1}}},
		{"new package", table{a: {5, 0}, b: {2, 1}, c: {1, 1}}, false, table{a: {5, 0}, b: {2, 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, before.lowered(test.now, test.moved)); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
	want := []change{{key: a, group: 0, before: 5, now: 6}, {key: b, group: 1, before: 1, now: 0}}
	if diff := cmp.Diff(want, compare(before, table{a: {6, 0}, b: {2, 0}}), cmp.AllowUnexported(change{}, key{})); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
