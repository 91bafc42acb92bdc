package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// point is a place of the source that a mutant changes.
type point struct {
	// File is relative to the folder of the package.
	File string
	Line int
	// Kind is what the mutant does, Text the source that it changes.
	Kind, Text string
	// before and after are inserted at from and to, in bytes. before contains placeholder.
	from, to      int
	before, after string
}

// placeholder stands for the call that reports whether the mutant is the one that runs.
const placeholder = "§"

// others are the operators that mutants replace, with the other operator.
var others = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.LAND: token.LOR, token.LOR: token.LAND,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
}

// scanner collects the points of a file.
type scanner struct {
	name   string
	source []byte
	files  *token.FileSet
	points []point
}

// scan returns the points of the files of a package, in the order of their position.
func scan(folder string, names []string) ([]point, error) {
	var points []point
	for _, name := range names {
		source, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		s := &scanner{name: name, source: source, files: token.NewFileSet()}
		file, err := parser.ParseFile(s.files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
				s.body(function.Type, function.Body)
			}
		}
		points = append(points, s.points...)
	}
	return points, nil
}

// body collects the points of a function, and of the functions in it.
func (s *scanner) body(signature *ast.FuncType, body *ast.BlockStmt) {
	returnsError := lastIsError(signature.Results)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.body(n.Type, n.Body)
			return false
		case *ast.BlockStmt:
			s.statements(n.List, returnsError)
		case *ast.CaseClause:
			s.statements(n.Body, returnsError)
		case *ast.CommClause:
			s.statements(n.Body, returnsError)
		case *ast.IfStmt:
			s.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				s.operators(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				s.cases(n.Body)
			}
		}
		return true
	})
}

// lastIsError reports whether the last result of a function is an error.
func lastIsError(results *ast.FieldList) bool {
	if results == nil || len(results.List) == 0 {
		return false
	}
	last, ok := results.List[len(results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}

// cases collects the points of the conditions of a switch.
func (s *scanner) cases(body *ast.BlockStmt) {
	for _, clause := range body.List {
		if clause, ok := clause.(*ast.CaseClause); ok {
			for _, c := range clause.List {
				s.condition(c)
			}
		}
	}
}

// statements collects the points of statements that can be left out, and of returns.
func (s *scanner) statements(list []ast.Stmt, returnsError bool) {
	for _, n := range list {
		kind := ""
		switch n := n.(type) {
		case *ast.ReturnStmt:
			s.result(n, returnsError)
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && !s.isExempt(call) {
				kind = "removes the call"
			}
		case *ast.DeferStmt:
			if !s.isExempt(n.Call) {
				kind = "removes the deferred call"
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				kind = "removes the assignment"
			}
		}
		if kind != "" {
			s.add(n, kind, "if !"+placeholder+" { ", " }")
		}
	}
}

// result collects the points of a return: an error that is not returned, and operators.
func (s *scanner) result(n *ast.ReturnStmt, returnsError bool) {
	for _, value := range n.Results {
		s.operators(value)
	}
	if !returnsError || len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if name, ok := last.(*ast.Ident); ok && name.Name == "nil" {
		return
	}
	if _, isCall := last.(*ast.CallExpr); isCall && len(n.Results) == 1 {
		// The call may return several values, and is kept for its effects.
		return
	}
	begin, end := s.offset(n.Pos()), s.offset(last.Pos())
	s.add(n, "returns no error", "if "+placeholder+" { "+string(s.source[begin:end])+"nil }; ", "")
}

// condition collects the points of a condition: it is negated, and its operators.
func (s *scanner) condition(c ast.Expr) {
	if b, ok := c.(*ast.BinaryExpr); !ok || b.Op != token.EQL && b.Op != token.NEQ {
		s.add(c, "negates the condition", "("+placeholder+") != (", ")")
	}
	s.operators(c)
}

// operators collects the points of the operators in an expression, outside functions.
func (s *scanner) operators(e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		b, ok := n.(*ast.BinaryExpr)
		if !ok {
			return true
		}
		if other, ok := others[b.Op]; ok {
			mutant := fmt.Sprintf("((%s) %s (%s))", s.text(b.X), other, s.text(b.Y))
			s.add(b, fmt.Sprintf("%s becomes %s", b.Op, other), fmt.Sprintf("(%s && %s || !%s && (", placeholder, mutant, placeholder), "))")
		}
		return true
	})
}

func (s *scanner) add(n ast.Node, kind, before, after string) {
	text := s.text(n)
	if first, _, several := strings.Cut(text, "\n"); several {
		text = first + " …"
	}
	s.points = append(s.points, point{
		File: s.name, Line: s.files.Position(n.Pos()).Line, Kind: kind, Text: text,
		from: s.offset(n.Pos()), to: s.offset(n.End()), before: before, after: after,
	})
}

func (s *scanner) offset(p token.Pos) int { return s.files.Position(p).Offset }

func (s *scanner) text(n ast.Node) string {
	return string(s.source[s.offset(n.Pos()):s.offset(n.End())])
}

// isExempt reports whether tests need not notice that a call is missing: it writes a log, is a test's seam, or ends the function.
func (s *scanner) isExempt(call *ast.CallExpr) bool {
	text := s.text(call.Fun)
	return slices.ContainsFunc([]string{"klog.", "logger.", "FromContext(ctx).", "panic"}, func(part string) bool { return strings.Contains(text, part) })
}
