package requirements

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// devicePart is the part of the device that an expression stands for.
type devicePart struct {
	kind   partKind
	domain string
}

type partKind int

const (
	// other is any value that is not a part of the device with several fields.
	other partKind = iota
	// wholeDevice is the variable device. The others are all its attributes or capacities, or those of one domain.
	wholeDevice
	allAttributes
	allCapacities
	attributeDomain
	capacityDomain
)

// readSetVisitor collects what an expression reads of a device.
//
// It visits the parsed expression. A path from the variable device down to one attribute or capacity, such as
// device.attributes["gpu.tessera.dev"].profile, is one read. A path that ends earlier passes several fields at once to
// something else, and a name that is computed could be any field: then readsUnknown is set, and results are not cached.
// Macros are expanded to comprehensions, in which cel.bind gives a part of the device another name (scope).
//
// Examples: device.driver == "x" reads nothing beyond what every key contains. device.attributes["d"].a == 1 reads d/a.
// device.attributes["d"].exists(n, n == "a") reads unknown fields.
type readSetVisitor struct {
	reads        readSet
	readsUnknown bool
}

// scope maps variables of an expression to the parts of the device that they denote.
type scope map[string]devicePart

// findReadSet returns what the parsed expression reads of a device, or true if that is unknown.
func findReadSet(e ast.Expr) (readSet, bool) {
	var v readSetVisitor
	v.visit(e, scope{"device": {kind: wholeDevice}})
	return v.reads, v.readsUnknown
}

// visit visits an expression whose value is used.
func (v *readSetVisitor) visit(e ast.Expr, in scope) {
	if v.visitRead(e, in) {
		return
	}
	if p := partOf(e, in); p.kind != other {
		v.readsUnknown = true
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		v.visit(e.AsSelect().Operand(), in)
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			v.visit(call.Target(), in)
		}
		v.visitAll(call.Args(), in)
	case ast.ListKind:
		v.visitAll(e.AsList().Elements(), in)
	case ast.ComprehensionKind:
		v.visitComprehension(e.AsComprehension(), in)
	case ast.LiteralKind, ast.IdentKind:
		// Nothing is read: variables that denote a part of the device are handled above.
	case ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		v.readsUnknown = true
	}
}

func (v *readSetVisitor) visitAll(list []ast.Expr, in scope) {
	for _, e := range list {
		v.visit(e, in)
	}
}

// visitComprehension visits an expanded macro, such as cel.bind, exists and all.
func (v *readSetVisitor) visitComprehension(c ast.ComprehensionExpr, in scope) {
	v.visit(c.IterRange(), in)
	start := partOf(c.AccuInit(), in)
	if start.kind == other {
		v.visit(c.AccuInit(), in)
	}
	bound := scope{}
	for name, p := range in {
		bound[name] = p
	}
	bound[c.IterVar()] = devicePart{}
	if c.HasIterVar2() {
		bound[c.IterVar2()] = devicePart{}
	}
	bound[c.AccuVar()] = start
	if start.kind != other && !isBind(c) {
		v.readsUnknown = true
		return
	}
	if start.kind == other {
		v.visit(c.LoopCondition(), bound)
		v.visit(c.LoopStep(), bound)
	}
	v.visit(c.Result(), bound)
}

// isBind reports whether the comprehension only gives its initial value a name, as cel.bind does.
func isBind(c ast.ComprehensionExpr) bool {
	return c.IterRange().Kind() == ast.ListKind && len(c.IterRange().AsList().Elements()) == 0
}

// visitRead records the read if the expression reads one field of the device, and reports whether it does.
func (v *readSetVisitor) visitRead(e ast.Expr, in scope) bool {
	of, id, ok := selectPart(e, in)
	if !ok {
		return false
	}
	switch of.kind {
	case wholeDevice:
		// Every key contains the driver and allowMultipleAllocations.
		return id == "driver" || id == "allowMultipleAllocations"
	case attributeDomain:
		v.reads.attributes = unionReads(v.reads.attributes, []readField{{of.domain, id}})
		return true
	case capacityDomain:
		v.reads.capacities = unionReads(v.reads.capacities, []readField{{of.domain, id}})
		return true
	case other, allAttributes, allCapacities:
	}
	return false
}

// partOf returns the part of the device with several fields that the expression stands for.
func partOf(e ast.Expr, in scope) devicePart {
	if e.Kind() == ast.IdentKind {
		if name := e.AsIdent(); name != ".device" {
			return in[name]
		}
		return devicePart{kind: wholeDevice}
	}
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return devicePart{}
	}
	of, id, ok := selectPart(e, in)
	if !ok || e.Kind() == ast.CallKind && e.AsCall().FunctionName() != operators.Index {
		return devicePart{}
	}
	return of.part(id)
}

// part returns the part with the name, if it has several fields.
func (p devicePart) part(id string) devicePart {
	switch p.kind {
	case wholeDevice:
		return map[string]devicePart{"attributes": {kind: allAttributes}, "capacity": {kind: allCapacities}}[id]
	case allAttributes:
		return devicePart{kind: attributeDomain, domain: id}
	case allCapacities:
		return devicePart{kind: capacityDomain, domain: id}
	case other, attributeDomain, capacityDomain:
	}
	return devicePart{}
}

// selectPart returns the part of which the expression selects one field, and the name of the field: x.id, has(x.id),
// x["id"], x.?id, x[?"id"] and "id" in x.
func selectPart(e ast.Expr, in scope) (of devicePart, id string, ok bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		return partOf(s.Operand(), in), s.FieldName(), true
	}
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return devicePart{}, "", false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		id, ok = stringConstant(args[1])
		return partOf(args[0], in), id, ok
	case operators.In:
		id, ok = stringConstant(args[0])
		return partOf(args[1], in), id, ok
	}
	return devicePart{}, "", false
}

// stringConstant returns the value of a string literal.
func stringConstant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
