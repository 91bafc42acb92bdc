package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScan(t *testing.T) {
	t.Parallel()
	const head = "package p\n"
	tests := map[string]struct {
		// files are sources by name; names with _test.go are tests.
		files map[string]string
		want  result
	}{
		"no test":                     {map[string]string{"a.go": head}, result{}},
		"pure":                        {map[string]string{"a.go": head, "a_test.go": head + `import "slices"`}, result{tested: true}},
		"goroutine":                   {map[string]string{"a.go": head + "func f() { go f() }", "a_test.go": head}, result{tested: true, concurrent: true}},
		"goroutine in a test":         {map[string]string{"a.go": head, "a_test.go": head + "func f() { go f() }"}, result{tested: true, concurrent: true}},
		"goroutine in a function":     {map[string]string{"a_test.go": head + "var f = func() { func() { go func() {}() }() }"}, result{tested: true, concurrent: true}},
		"channel type":                {map[string]string{"a.go": head + "type t struct{ c <-chan int }", "a_test.go": head}, result{tested: true, concurrent: true}},
		"select":                      {map[string]string{"a.go": head + "func f() { select {} }", "a_test.go": head}, result{tested: true, concurrent: true}},
		"lock":                        {map[string]string{"a.go": head + `import "sync"`, "a_test.go": head}, result{tested: true, concurrent: true}},
		"lock under another name":     {map[string]string{"a.go": head + `import s "sync/atomic"`, "a_test.go": head}, result{tested: true, concurrent: true}},
		"server in a test":            {map[string]string{"a_test.go": head + `import "net/http/httptest"`}, result{tested: true, concurrent: true}},
		"clientcmd starts nothing":    {map[string]string{"a_test.go": head + `import "k8s.io/client-go/tools/clientcmd"`}, result{tested: true}},
		"another system's files":      {map[string]string{"a_windows.go": head + "func f() { go f() }", "a_test.go": head}, result{tested: true, concurrent: true}},
		"files of another tag":        {map[string]string{"a.go": "//go:build crashtest\n\n" + head + "func f() { go f() }", "a_test.go": head}, result{tested: true, concurrent: true}},
		"tests kept from -race":       {map[string]string{"a_test.go": "//go:build !race\n\n" + head}, result{tested: true, excluded: true}},
		"tests kept from -race, root": {map[string]string{"a_test.go": "//go:build linux && !race\n\n" + head}, result{tested: true, excluded: true}},
		"tests for -race only":        {map[string]string{"a_test.go": "//go:build race\n\n" + head}, result{tested: true}},
		"a comment is no constraint":  {map[string]string{"a_test.go": head + "//go:build !race\n"}, result{tested: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pkg{Dir: t.TempDir()}
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if filepath.Base(file) == "a_test.go" {
					p.TestGoFiles = append(p.TestGoFiles, file)
				} else {
					p.IgnoredGoFiles = append(p.IgnoredGoFiles, file)
				}
			}
			got, err := scan(p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Every package with tests runs at least once: with the detector, without it, or both.
func TestEveryPackageRuns(t *testing.T) {
	t.Parallel()
	for _, concurrent := range []bool{false, true} {
		for _, excluded := range []bool{false, true} {
			if r := (result{tested: true, concurrent: concurrent, excluded: excluded}); !r.concurrent && !r.runsPlain() || r.excluded && !r.runsPlain() {
				t.Errorf("%+v: some tests would not run", r)
			}
		}
	}
}

// The packages of the tree are found as their import paths are given.
func TestList(t *testing.T) {
	t.Parallel()
	packages, err := list(t.Context(), []string{"../../../kubelet-plugin/prepare", "../../../api/gpu"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, p := range packages {
		s, err := scan(p)
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Base(p.Dir)] = s.concurrent
	}
	if diff := cmp.Diff(map[string]bool{"prepare": true, "gpu": false}, got); diff != "" {
		t.Errorf("concurrent (-want +got):\n%s", diff)
	}
	if _, err := list(t.Context(), nil); err == nil {
		t.Error("an empty list of packages passes")
	}
}
