package verify

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maxLines is the maximal length of a file of product code; tests and generated files are exempt.
const maxLines = 400

// Split in two, so that this file does not match its own patterns.
var (
	undone   = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machine  = regexp.MustCompile(`(^|[^\w.$}/-])/(wo` + `rk|ho` + `me/\w+|ro` + `ot/(go|\.cache))/`)
	registry = regexp.MustCompile(`\b(proxy\.golang` + `\.org|deb\.debian` + `\.org|security\.debian` + `\.org)\b`)
)

func TestNoFileIsTooLong(t *testing.T) {
	files(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") || ast.IsGenerated(parse(t, path, text)) {
			return
		}
		if lines := strings.Count(text, "\n"); lines > maxLines {
			t.Errorf("%s: %d lines, at most %d: split it", path, lines, maxLines)
		}
	}, ".go")
}

func TestNothingIsLeftUndone(t *testing.T) {
	files(t, func(path, text string) {
		for _, found := range matches(undone, text) {
			t.Errorf("%s:%s: finish it, or write it down as an issue", path, found)
		}
	}, ".go", ".c", ".h", ".sh", ".yaml", ".md", "Makefile", "run")
}

func TestNoMachineIsNamed(t *testing.T) {
	files(t, func(path, text string) {
		for _, pattern := range []*regexp.Regexp{machine, registry} {
			for _, found := range matches(pattern, text) {
				t.Errorf("%s:%s: a path or a host of one machine", path, found)
			}
		}
	}, ".go", ".c", ".h", ".sh", ".yaml", ".yml", ".json", ".md", "Makefile", "run", ".mod")
}

func TestEverySkipHasAReason(t *testing.T) {
	files(t, func(path, text string) {
		for _, complaint := range skips(parse(t, path, text)) {
			t.Errorf("%s: %s", path, complaint)
		}
	}, ".go")
}

func TestNoTestSleeps(t *testing.T) {
	files(t, func(path, text string) {
		// In a bubble of testing/synctest, sleeping advances the fake clock.
		bubble := strings.Contains(text, `"testing/synctest"`)
		if strings.HasSuffix(path, "_test.go") && !bubble && calls(parse(t, path, text), "time", "Sleep") {
			t.Errorf("%s: time.Sleep: wait for a condition, or use testing/synctest", path)
		}
	}, ".go")
}

// matches returns "line: text" of every match.
func matches(pattern *regexp.Regexp, text string) []string {
	var found []string
	for i, line := range strings.Split(text, "\n") {
		if m := pattern.FindString(line); m != "" {
			found = append(found, fmt.Sprintf("%d: %s", i+1, strings.TrimSpace(m)))
		}
	}
	return found
}

func parse(t *testing.T, path, text string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// mute are ginkgo's ways to leave a spec out or to run only some of them.
var mute = regexp.MustCompile(`^(P|X|F)(It|Describe|Context|When|Specify|DescribeTable|Entry)$`)

// skips returns the tests that are skipped unconditionally or excluded by focus.
func skips(file *ast.File) []string {
	var complaints []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			if mute.MatchString(f.Name) {
				complaints = append(complaints, f.Name+" leaves specs out")
			}
		case *ast.SelectorExpr:
			if f.Sel.Name == "SkipNow" || f.Sel.Name == "Skip" && len(call.Args) == 0 {
				complaints = append(complaints, f.Sel.Name+" without a reason")
			}
		}
		return true
	})
	return complaints
}

// calls reports whether the file calls pkg.name.
func calls(file *ast.File, pkg, name string) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				found = true
			}
		}
		return true
	})
	return found
}

func TestHouseRulesFindWhatTheyLookFor(t *testing.T) {
	source := `package p
func f(t *testing.T) { t.SkipNow(); t.Skip(); t.Skip("needs root"); time.Sleep(1) }
func g() { PIt("later", nil); It("now", nil); FDescribe("only this", nil) }`
	file := parse(t, "p.go", source)
	want := []string{"SkipNow without a reason", "Skip without a reason", "PIt leaves specs out", "FDescribe leaves specs out"}
	if diff := cmp.Diff(want, skips(file)); diff != "" {
		t.Errorf("skips (-want +got):\n%s", diff)
	}
	if !calls(file, "time", "Sleep") {
		t.Error("the sleep was not found")
	}
	text := "a := \"/wo" + "rk/x\" // TO" + "DO\n\"/host/wo" + "rk/x\" b.wo" + "rk/x todo"
	if got := matches(machine, text); len(got) != 1 {
		t.Errorf("machine paths: got %q, want one", got)
	}
	if got := matches(undone, text); len(got) != 1 {
		t.Errorf("undone: got %q, want one", got)
	}
}

func TestEveryTopFolderHasAReadme(t *testing.T) {
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "dist" {
			continue
		}
		readme := filepath.Join(root(t), entry.Name(), "README.md")
		text, err := os.ReadFile(readme)
		if err != nil {
			t.Errorf("%s: every top folder has a README: %v", entry.Name(), err)
			continue
		}
		if lines := strings.Count(string(text), "\n"); lines > 120 {
			t.Errorf("%s/README.md: %d lines, at most 120", entry.Name(), lines)
		}
	}
}
