package main

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// result is the result of scanning a package's files.
type result struct {
	// tested is set when the package has tests.
	tested bool
	// concurrent is set when code of the package or of its tests can run on several goroutines.
	concurrent bool
	// excluded is set when a test file has the constraint !race: the detector would not see its tests.
	excluded bool
}

// runsPlain reports whether the tests have to run without the race detector: those of a package without
// concurrency, and those that the constraint !race keeps from the detector.
func (r result) runsPlain() bool { return !r.concurrent || r.excluded }

// scan reads all files of a package, whatever their build constraints.
func scan(p pkg) (result, error) {
	r := result{tested: len(p.TestGoFiles)+len(p.XTestGoFiles) > 0}
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles) {
		if filepath.Ext(name) != ".go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return result{}, err
		}
		r.concurrent = r.concurrent || isConcurrent(file)
		r.excluded = r.excluded || strings.HasSuffix(name, "_test.go") && excludesRace(file)
	}
	return r, nil
}

// libraries run functions of their callers on other goroutines, or guard what several goroutines share.
var libraries = []string{
	"sync", "sync/atomic", "testing/synctest", "golang.org/x/sync/errgroup", "golang.org/x/sync/semaphore", "golang.org/x/sync/singleflight",
	"net/http/httptest", "google.golang.org/grpc",
	"k8s.io/client-go/informers", "k8s.io/client-go/tools/cache", "k8s.io/client-go/tools/events", "k8s.io/client-go/tools/leaderelection",
	"k8s.io/client-go/tools/record", "k8s.io/client-go/util/workqueue", "k8s.io/dynamic-resource-allocation/kubeletplugin",
	"k8s.io/kubernetes/pkg/scheduler", "k8s.io/kubernetes/pkg/scheduler/framework/parallelize", "k8s.io/kubernetes/pkg/scheduler/framework/runtime",
	"sigs.k8s.io/controller-runtime", "sigs.k8s.io/controller-runtime/pkg/builder", "sigs.k8s.io/controller-runtime/pkg/cache",
	"sigs.k8s.io/controller-runtime/pkg/controller", "sigs.k8s.io/controller-runtime/pkg/manager", "sigs.k8s.io/controller-runtime/pkg/source",
}

// isConcurrent reports whether a file starts a goroutine, uses channels, or imports one of the libraries.
// The parallel tests of a package alone do not count: what they share is read only, and the packages that
// use it concurrently run it under the detector.
func isConcurrent(file *ast.File) bool {
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil && slices.Contains(libraries, path) {
			return true
		}
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
			found = true
		}
		return !found
	})
	return found
}

// excludesRace reports whether a file is compiled without the race detector only.
func excludesRace(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, line := range group.List {
			if group.Pos() >= file.Package || !constraint.IsGoBuild(line.Text) {
				continue
			}
			expression, err := constraint.Parse(line.Text)
			everything := func(raced bool) func(string) bool { return func(tag string) bool { return tag != "race" || raced } }
			if err == nil && expression.Eval(everything(false)) && !expression.Eval(everything(true)) {
				return true
			}
		}
	}
	return false
}
