package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/go/packages"
)

// libraries replace the packages that define metrics and flags.
var libraries = map[string]string{
	"github.com/prometheus/client_golang/prometheus": `package prometheus
type Opts struct { Name, Help string; ConstLabels map[string]string }
type Vec struct{}
func NewCounterVec(o Opts, labels []string) Vec { return Vec{} }
func NewGaugeFunc(o Opts, f func() float64) Vec { return Vec{} }
func NewDesc(name, help string, labels []string, constant map[string]string) *Vec { return nil }`,
	"flag": `package flag
func String(name string, value string, usage string) *string { return nil }
func Lookup(name string) string { return "" }`,
}

const source = `package p
import ("flag"; "github.com/prometheus/client_golang/prometheus")
type Kind string
const (
	Small Kind = "small"
	quiet = "a private text"
	reasonLost = "Lost"
	key = "tessera.dev/key"
)
type Report struct {
	Name string ` + "`json:\"name,omitempty\"`" + `
	Inner struct { Count int ` + "`json:\"count\"`" + ` } ` + "`json:\"inner\"`" + `
	Left int
	Out int ` + "`json:\"-\"`" + `
}
type condition struct{ Type, Reason string }
type recorder struct{}
func (recorder) Eventf(reason, note string) {}
func f(r recorder, value func() float64) {
	gauge := func(name, help string) { prometheus.NewGaugeFunc(prometheus.Opts{Name: "p_" + name, Help: help}, value) }
	gauge("one", "First.")
	gauge("two", "Second.")
	prometheus.NewCounterVec(prometheus.Opts{Name: "p_total", Help: "All.", ConstLabels: map[string]string{"node": "x"}}, []string{"reason"})
	desc("lost", "gpu")
	flag.String("output", "", "where")
	flag.Lookup("v")
	r.Eventf("Evicted", "a note")
	_ = condition{Type: "Ready", Reason: "Proven"}
}
func desc(name string, labels ...string) { prometheus.NewDesc("p_"+string(name), "Help.", labels, nil) }
`

// load type-checks the source as a package of the product.
func load(t *testing.T, source string) unit {
	t.Helper()
	files := token.NewFileSet()
	known := map[string]*types.Package{}
	check := func(path, text string, info *types.Info) (*ast.File, *types.Package) {
		file, err := parser.ParseFile(files, path+".go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		config := types.Config{Importer: importing(known)}
		checked, err := config.Check(path, files, []*ast.File{file}, info)
		if err != nil {
			t.Fatal(err)
		}
		return file, checked
	}
	for path, text := range libraries {
		_, known[path] = check(path, text, nil)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	file, checked := check("p", source, info)
	return unit{Package: &packages.Package{Fset: files, Syntax: []*ast.File{file}, Types: checked, TypesInfo: info}, name: "p"}
}

// importing finds the packages that were checked before.
type importing map[string]*types.Package

func (i importing) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return importer.Default().Import(path)
}

func TestCodeFindsPublicNames(t *testing.T) {
	u := load(t, source)
	metrics, err := u.metrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"metrics", metrics, []string{"p_lost {gpu} Help.", "p_one {} First.", "p_total {node,reason} All.", "p_two {} Second."}},
		{"fields", u.jsonFields(), []string{"p.Report.inner struct{Count int \"json:\\\"count\\\"\"}", "p.Report.inner.count int", "p.Report.name string"}},
		{"constants", u.constants(), []string{"p Evicted", "p Lost", "p Proven", "p Ready", "p small", "p tessera.dev/key"}},
		{"commands", u.commands(), []string{"p --output"}},
	} {
		slices.Sort(c.got)
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

func TestMetricWithComputedNameIsAnError(t *testing.T) {
	u := load(t, `package p
import "github.com/prometheus/client_golang/prometheus"
var names = []string{"a"}
func f() { prometheus.NewDesc(names[0], "", nil, nil) }`)
	if lines, err := u.metrics(); err == nil {
		t.Errorf("metrics: got %q, want an error that names the place", lines)
	}
}

func TestChartValueWithoutDefaultIsListed(t *testing.T) {
	defaults, paths := map[string]string{}, map[string]bool{}
	if err := flatten("", map[string]any{"a": map[string]any{"b": 1}, "empty": map[string]any{}}, defaults); err != nil {
		t.Fatal(err)
	}
	schemaPaths("", map[string]any{"properties": map[string]any{"a": map[string]any{"properties": map[string]any{"c": map[string]any{}}}}}, paths)
	if diff := cmp.Diff(map[string]string{"a.b": "1", "empty": "{}"}, defaults); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"a.c": true}, paths); diff != "" {
		t.Errorf("paths of the schema (-want +got):\n%s", diff)
	}
}
