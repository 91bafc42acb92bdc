package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/tessera-gpu/tessera/kubelet-plugin/server"
)

const module = "github.com/tessera-gpu/tessera/"

// product are the packages whose names are public in some way.
func product() []string {
	return []string{"./api/...", "./cmd/...", "./dra-driver/...", "./installer/...", "./kubelet-plugin/...", "./scheduler-plugin/..."}
}

// codeSections lists what the Go code defines.
func codeSections(ctx context.Context, repository string) ([]section, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx, Dir: repository,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax | packages.NeedExportFile,
	}, product()...)
	if err != nil {
		return nil, fmt.Errorf("load the product's packages: %w", err)
	}
	fields, constants, metrics, commands := section{title: "JSON fields"}, section{title: "Constants with public values"}, section{title: "Metrics"}, section{title: "Commands and flags"}
	for _, p := range loaded {
		for _, problem := range p.Errors {
			return nil, fmt.Errorf("load %s: %w", p.PkgPath, problem)
		}
		if strings.HasSuffix(p.Name, "test") { // a test's helpers, gputest for one: no binary has them
			continue
		}
		unit := unit{Package: p, name: strings.TrimPrefix(p.PkgPath, module)}
		fields.lines = append(fields.lines, unit.jsonFields()...)
		constants.lines = append(constants.lines, unit.constants()...)
		commands.lines = append(commands.lines, unit.commands()...)
		found, err := unit.metrics()
		if err != nil {
			return nil, err
		}
		metrics.lines = append(metrics.lines, found...)
	}
	metrics.lines = append(metrics.lines, exporterMetrics(ctx)...)
	for _, refusal := range server.Refusals() {
		constants.lines = append(constants.lines, "kubelet-plugin/server "+refusal.Reason)
	}
	attributes, err := deviceAttributes()
	if err != nil {
		return nil, err
	}
	return []section{attributes, fields, constants, metrics, commands}, nil
}

// unit is a package with its path below the module.
type unit struct {
	*packages.Package
	name string
}

// visit calls f with every node of the package's files.
func (u unit) visit(f func(ast.Node)) {
	for _, file := range u.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			f(n)
			return true
		})
	}
}

// jsonFields lists the fields with a json tag: package.Type.name type.
func (u unit) jsonFields() []string {
	var lines []string
	scope := u.Types.Scope()
	for _, name := range scope.Names() {
		declared, ok := scope.Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if structure, ok := declared.Type().Underlying().(*types.Struct); ok && !declared.IsAlias() {
			lines = append(lines, fieldsOf(u.name+"."+name, structure)...)
		}
	}
	return lines
}

func fieldsOf(path string, structure *types.Struct) []string {
	var lines []string
	for i := range structure.NumFields() {
		tag, ok := reflect.StructTag(structure.Tag(i)).Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		if !ok || name == "-" {
			continue
		}
		field := structure.Field(i)
		typed := types.TypeString(field.Type(), func(p *types.Package) string { return p.Name() })
		if name == "" {
			name = "(" + options + ")"
		}
		lines = append(lines, path+"."+name+" "+typed)
		if inner, ok := field.Type().(*types.Struct); ok {
			lines = append(lines, fieldsOf(path+"."+name, inner)...)
		}
	}
	return lines
}

// public matches values of constants that others may depend on: names in CamelCase, keys with a domain, environment variables, paths, and
// names of files.
var public = regexp.MustCompile(`^([A-Z][A-Za-z0-9]+|[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[a-z0-9.-]+\.(dev|com|io)(/[\w./-]*)?|/[\w./-]+|[\w.-]+\.(json|yaml|state|lock|sock|conf|log|toml|bin))$`)

// constants lists the values of string constants that look public or have a named type, and the texts in Events and conditions. Identifiers are
// left out: they are internal, and a rename does not change the list.
func (u unit) constants() []string {
	var lines []string
	for _, object := range u.TypesInfo.Defs {
		c, ok := object.(*types.Const)
		if !ok || c.Val().Kind() != constant.String {
			continue
		}
		value := constant.StringVal(c.Val())
		_, named := c.Type().(*types.Named)
		if value != "" && (named && c.Exported() || public.MatchString(value)) {
			lines = append(lines, u.name+" "+value)
		}
	}
	u.visit(func(n ast.Node) {
		for _, expression := range reported(n) {
			if text, err := u.text(expression, nil); err == nil && public.MatchString(text) {
				lines = append(lines, u.name+" "+text)
			}
		}
	})
	return lines
}

// reported returns the texts of a node that are the reason of an Event, or the type or reason of a condition.
func reported(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if f := identifier(n.Fun); f != nil && (f.Name == "Event" || f.Name == "Eventf") {
			return n.Args
		}
	case *ast.KeyValueExpr:
		if key := identifier(n.Key); key != nil && slices.Contains([]string{"Reason", "Type"}, key.Name) {
			return []ast.Expr{n.Value}
		}
	}
	return nil
}

// commands lists the flags that are defined with pflag or flag, and the commands of cobra, with their help.
func (u unit) commands() []string {
	var lines []string
	u.visit(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if line := u.flag(n); line != "" {
				lines = append(lines, u.name+" "+line)
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Use" {
				if use, err := u.text(n.Value, nil); err == nil {
					lines = append(lines, u.name+" command "+use)
				}
			}
		}
	})
	return lines
}

// flag returns the flag that the call defines, empty if it defines none.
func (u unit) flag(call *ast.CallExpr) string {
	f := u.callee(call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != "github.com/spf13/pflag" && f.Pkg().Path() != "flag" {
		return ""
	}
	parameters := f.Signature().Params()
	name, shorthand, defines := "", "", false
	for i := range min(parameters.Len(), len(call.Args)) {
		text, err := u.text(call.Args[i], nil)
		switch parameters.At(i).Name() {
		case "usage":
			defines = true
		case "name":
			name = text
			if err != nil {
				name = "(computed)"
			}
		case "shorthand":
			shorthand = " -" + text
		}
	}
	if !defines {
		return ""
	}
	return "--" + name + shorthand
}

// callee returns the function or method that is called, nil when it is a value.
func (u unit) callee(call *ast.CallExpr) *types.Func {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		f2, _ := u.TypesInfo.Uses[f].(*types.Func)
		return f2
	case *ast.SelectorExpr:
		f2, _ := u.TypesInfo.Uses[f.Sel].(*types.Func)
		return f2
	}
	return nil
}

// errUnknown is returned for an expression that depends on more than constants and the environment.
var errUnknown = errors.New("not a constant")

// environment has the arguments of a call for the parameters of the function.
type environment map[types.Object]ast.Expr

// text evaluates a string expression.
func (u unit) text(expression ast.Expr, env environment) (string, error) {
	if value := u.TypesInfo.Types[expression].Value; value != nil && value.Kind() == constant.String {
		return constant.StringVal(value), nil
	}
	switch e := ast.Unparen(expression).(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.Ident:
		if argument, ok := env[u.TypesInfo.Uses[e]]; ok {
			return u.text(argument, nil)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, err := u.text(e.X, env)
			right, err2 := u.text(e.Y, env)
			return left + right, errors.Join(err, err2)
		}
	case *ast.CallExpr: // a conversion
		if u.TypesInfo.Types[e.Fun].IsType() {
			return u.text(e.Args[0], env)
		}
	}
	return "", fmt.Errorf("%s: %w", u.place(expression), errUnknown)
}

// place is where a node is, below the repository.
func (u unit) place(n ast.Node) string {
	at := u.Fset.Position(n.Pos())
	return fmt.Sprintf("%s/%s:%d", u.name, filepath.Base(at.Filename), at.Line)
}
