package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/kubelet-plugin/exporter"
)

// exporterPackage is the package whose metrics are read from a running collector: they are constructed in a loop over a table.
const exporterPackage = "kubelet-plugin/exporter"

// metric is the construction of a metric, before its texts are evaluated.
type metric struct {
	subsystem, name, help ast.Expr
	labels                []ast.Expr
}

// metrics lists the metrics that the package constructs: name {labels} help. Where a name is an argument of a function of the package, the
// metric is listed for each call of it.
func (u unit) metrics() ([]string, error) {
	if u.name == exporterPackage {
		return nil, nil
	}
	var lines []string
	var errs []error
	for _, file := range u.Syntax {
		for _, declaration := range file.Decls {
			for _, m := range u.metricsIn(declaration) {
				found, err := u.evaluate(m, declaration)
				lines, errs = append(lines, found...), append(errs, err)
			}
		}
	}
	return lines, errors.Join(errs...)
}

// metricsIn returns the constructions of metrics below the node.
func (u unit) metricsIn(n ast.Node) []metric {
	var found []metric
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f := u.callee(call)
		if f == nil || f.Pkg() == nil || !slices.Contains([]string{"github.com/prometheus/client_golang/prometheus", "k8s.io/component-base/metrics"}, f.Pkg().Path()) {
			return true
		}
		if f.Name() == "NewDesc" {
			found = append(found, metric{name: call.Args[0], help: call.Args[1], labels: elements(call.Args[2])})
		} else if m, ok := fromOptions(call, strings.HasSuffix(f.Name(), "Vec")); ok {
			found = append(found, m)
		}
		return true
	})
	return found
}

// fromOptions returns the metric of a constructor whose first argument is a literal of options, and whose second lists the labels of a vector.
func fromOptions(call *ast.CallExpr, vector bool) (metric, bool) {
	if len(call.Args) == 0 {
		return metric{}, false
	}
	options := call.Args[0]
	if pointer, ok := options.(*ast.UnaryExpr); ok {
		options = pointer.X
	}
	literal, ok := options.(*ast.CompositeLit)
	if !ok {
		return metric{}, false
	}
	var m metric
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok || identifier(pair.Key) == nil {
			continue
		}
		switch identifier(pair.Key).Name {
		case "Subsystem":
			m.subsystem = pair.Value
		case "Name":
			m.name = pair.Value
		case "Help":
			m.help = pair.Value
		case "ConstLabels":
			m.labels = append(m.labels, keys(pair.Value)...)
		}
	}
	if vector {
		m.labels = append(m.labels, elements(call.Args[1])...)
	}
	return m, m.name != nil
}

// elements are those of a literal of a list; another expression is its own element; nil and functions have none.
func elements(list ast.Expr) []ast.Expr {
	switch l := list.(type) {
	case *ast.CompositeLit:
		return l.Elts
	case *ast.Ident:
		if l.Name != "nil" {
			return []ast.Expr{l}
		}
	}
	return nil
}

func keys(literal ast.Expr) []ast.Expr {
	var list []ast.Expr
	if l, ok := literal.(*ast.CompositeLit); ok {
		for _, element := range l.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				list = append(list, pair.Key)
			}
		}
	}
	return list
}

// evaluate returns the lines of a metric that is constructed in the declaration.
func (u unit) evaluate(m metric, declaration ast.Decl) ([]string, error) {
	line, err := u.line(m, nil, nil)
	if err == nil {
		return []string{line}, nil
	}
	function := u.enclosing(m.name, declaration)
	if function == nil {
		return nil, fmt.Errorf("metric %w", err)
	}
	var lines []string
	var errs []error
	u.visit(func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok && u.TypesInfo.Uses[identifier(call.Fun)] == function.object {
			env, rest := function.bind(u, call)
			line, err := u.line(m, env, rest)
			lines, errs = append(lines, line), append(errs, err)
		}
	})
	if len(lines) == 0 {
		errs = append(errs, err)
	}
	return lines, errors.Join(errs...)
}

// line evaluates a metric. The rest are the variadic arguments of the call, which are labels.
func (u unit) line(m metric, env environment, rest []ast.Expr) (string, error) {
	name, err := u.text(m.name, env)
	if err != nil {
		return "", err
	}
	if m.subsystem != nil {
		subsystem, err := u.text(m.subsystem, env)
		if err != nil {
			return "", err
		}
		name = subsystem + "_" + name
	}
	help, err := u.text(m.help, env)
	if err != nil {
		return "", err
	}
	var labels []string
	for _, label := range slices.Concat(m.labels, rest) {
		text, err := u.text(label, env)
		if id, ok := label.(*ast.Ident); ok && err != nil && rest != nil && u.TypesInfo.TypeOf(id).String() == "[]string" {
			continue // the variadic parameter itself
		} else if err != nil {
			return "", err
		}
		labels = append(labels, text)
	}
	return metricLine(name, labels, help), nil
}

func metricLine(name string, labels []string, help string) string {
	return fmt.Sprintf("%s {%s} %s", name, strings.Join(labels, ","), help)
}

// function is a function of a package, or one that is the value of a local variable.
type function struct {
	object     types.Object
	parameters []*ast.Ident
	variadic   bool
}

// enclosing returns the innermost function around the expression that has a name.
func (u unit) enclosing(expression ast.Expr, declaration ast.Decl) *function {
	var found *function
	ast.Inspect(declaration, func(n ast.Node) bool {
		if n == nil || n.Pos() > expression.Pos() || n.End() < expression.End() {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = newFunction(u.TypesInfo.Defs[n.Name], n.Type)
		case *ast.AssignStmt:
			if literal, ok := n.Rhs[0].(*ast.FuncLit); ok {
				found = newFunction(u.TypesInfo.Defs[identifier(n.Lhs[0])], literal.Type)
			}
		}
		return true
	})
	return found
}

func newFunction(object types.Object, typed *ast.FuncType) *function {
	f := &function{object: object}
	for _, field := range typed.Params.List {
		f.parameters = append(f.parameters, field.Names...)
		_, f.variadic = field.Type.(*ast.Ellipsis)
	}
	return f
}

// bind returns the arguments of a call by parameter, and the variadic ones.
func (f *function) bind(u unit, call *ast.CallExpr) (environment, []ast.Expr) {
	env := environment{}
	fixed := len(f.parameters)
	if f.variadic {
		fixed--
	}
	for i := range fixed {
		env[u.TypesInfo.Defs[f.parameters[i]]] = call.Args[i]
	}
	return env, append([]ast.Expr{}, call.Args[fixed:]...)
}

func identifier(expression ast.Expr) *ast.Ident {
	switch e := expression.(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	}
	return nil
}

// described matches the text of a description: prometheus gives no other access to it.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// exporterMetrics lists what the exporter of the GPUs describes.
func exporterMetrics(ctx context.Context) []string {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		exporter.New(ctx, exporter.Config{}).Describe(descriptions)
	}()
	var lines []string
	for d := range descriptions {
		part := described.FindStringSubmatch(d.String())
		if part == nil {
			lines = append(lines, d.String())
			continue
		}
		var labels []string
		for _, constant := range strings.Split(part[3], ",") {
			name, _, _ := strings.Cut(constant, "=")
			labels = append(labels, name)
		}
		labels = append(labels, strings.FieldsFunc(part[4], func(r rune) bool { return r == ',' })...)
		lines = append(lines, metricLine(part[1], labels, part[2]))
	}
	return lines
}
