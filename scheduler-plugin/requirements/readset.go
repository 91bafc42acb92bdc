package requirements

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// devicePart is what an expression stands for.
type devicePart struct {
	kind   partKind
	domain string
}

type partKind int

const (
	// other is any value; what it was made of is looked at where it stands.
	other partKind = iota
	// wholeDevice is the variable device, all its attributes or capacities, domain those of one domain.
	wholeDevice
	allAttributes
	allCapacities
	attributeDomain
	capacityDomain
)

// readSetVisitor collects what an expression sees.
type readSetVisitor struct {
	reads        readSet
	readsUnknown bool
}

// scope are the variables that an expression has, beside device.
type scope map[string]devicePart

// findReadSet returns what of a device the parsed expression sees, or that this is not known: because it uses a
// domain or the device as a whole, or names what it reads by a value.
func findReadSet(e ast.Expr) (readSet, bool) {
	var o readSetVisitor
	o.visit(e, scope{"device": {kind: wholeDevice}})
	return o.reads, o.readsUnknown
}

// visit looks at an expression whose value is used.
func (o *readSetVisitor) visit(e ast.Expr, in scope) {
	if o.visitRead(e, in) {
		return
	}
	if p := partOf(e, in); p.kind != other {
		o.readsUnknown = true
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		o.visit(e.AsSelect().Operand(), in)
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			o.visit(call.Target(), in)
		}
		o.visitAll(call.Args(), in)
	case ast.ListKind:
		o.visitAll(e.AsList().Elements(), in)
	case ast.ComprehensionKind:
		o.visitComprehension(e.AsComprehension(), in)
	case ast.LiteralKind, ast.IdentKind:
		// Sees nothing: a variable that stands for a part of a device was located above.
	case ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		o.readsUnknown = true
	}
}

func (o *readSetVisitor) visitAll(list []ast.Expr, in scope) {
	for _, e := range list {
		o.visit(e, in)
	}
}

// visitComprehension looks at what macros become, cel.bind, exists and all among them.
func (o *readSetVisitor) visitComprehension(c ast.ComprehensionExpr, in scope) {
	o.visit(c.IterRange(), in)
	start := partOf(c.AccuInit(), in)
	if start.kind == other {
		o.visit(c.AccuInit(), in)
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
		o.readsUnknown = true
		return
	}
	if start.kind == other {
		o.visit(c.LoopCondition(), bound)
		o.visit(c.LoopStep(), bound)
	}
	o.visit(c.Result(), bound)
}

// isBind reports whether the comprehension only gives its start a name, as cel.bind does.
func isBind(c ast.ComprehensionExpr) bool {
	return c.IterRange().Kind() == ast.ListKind && len(c.IterRange().AsList().Elements()) == 0
}

// visitRead takes in an expression that reads one thing of the device, and reports whether it is one.
func (o *readSetVisitor) visitRead(e ast.Expr, in scope) bool {
	of, id, ok := selectPart(e, in)
	if !ok {
		return false
	}
	switch of.kind {
	case wholeDevice:
		// The driver and whether a device may be allocated more than once are always seen.
		return id == "driver" || id == "allowMultipleAllocations"
	case attributeDomain:
		o.reads.attributes = unionReads(o.reads.attributes, []readField{{of.domain, id}})
		return true
	case capacityDomain:
		o.reads.capacities = unionReads(o.reads.capacities, []readField{{of.domain, id}})
		return true
	case other, allAttributes, allCapacities:
	}
	return false
}

// partOf returns the part of the device, larger than one value, that the expression stands for.
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

// part returns the part of the name, when it is larger than one value.
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

// selectPart returns the part of a device of which the expression takes one thing, and the name of that: x.id,
// has(x.id), x["id"], x.?id, x[?"id"] and "id" in x.
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

// stringConstant returns the value of a literal string.
func stringConstant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
