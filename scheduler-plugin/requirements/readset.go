package requirements

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// place is what an expression stands for.
type place struct {
	kind   kind
	domain string
}

type kind int

const (
	// other is any value; what it was made of is looked at where it stands.
	other kind = iota
	// wholeDevice is the variable device, all its attributes or capacities, domain those of one domain.
	wholeDevice
	allAttributes
	allCapacities
	attributeDomain
	capacityDomain
)

// onlooker collects what an expression sees.
type onlooker struct {
	sight  sight
	opaque bool
}

// scope are the variables that an expression has, beside device.
type scope map[string]place

// look returns what of a device the parsed expression sees, or that this is not known: because it uses a
// domain or the device as a whole, or names what it reads by a value.
func look(e ast.Expr) (sight, bool) {
	var o onlooker
	o.visit(e, scope{"device": {kind: wholeDevice}})
	return o.sight, o.opaque
}

// visit looks at an expression whose value is used.
func (o *onlooker) visit(e ast.Expr, in scope) {
	if o.reads(e, in) {
		return
	}
	if p := locate(e, in); p.kind != other {
		o.opaque = true
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
		o.each(call.Args(), in)
	case ast.ListKind:
		o.each(e.AsList().Elements(), in)
	case ast.ComprehensionKind:
		o.comprehension(e.AsComprehension(), in)
	case ast.LiteralKind, ast.IdentKind:
		// Sees nothing: a variable that stands for a part of a device was located above.
	case ast.MapKind, ast.StructKind, ast.UnspecifiedExprKind:
		o.opaque = true
	}
}

func (o *onlooker) each(list []ast.Expr, in scope) {
	for _, e := range list {
		o.visit(e, in)
	}
}

// comprehension looks at what macros become, cel.bind, exists and all among them.
func (o *onlooker) comprehension(c ast.ComprehensionExpr, in scope) {
	o.visit(c.IterRange(), in)
	start := locate(c.AccuInit(), in)
	if start.kind == other {
		o.visit(c.AccuInit(), in)
	}
	bound := scope{}
	for name, p := range in {
		bound[name] = p
	}
	bound[c.IterVar()] = place{}
	if c.HasIterVar2() {
		bound[c.IterVar2()] = place{}
	}
	bound[c.AccuVar()] = start
	if start.kind != other && !binds(c) {
		o.opaque = true
		return
	}
	if start.kind == other {
		o.visit(c.LoopCondition(), bound)
		o.visit(c.LoopStep(), bound)
	}
	o.visit(c.Result(), bound)
}

// binds reports whether the comprehension only gives its start a name, as cel.bind does.
func binds(c ast.ComprehensionExpr) bool {
	return c.IterRange().Kind() == ast.ListKind && len(c.IterRange().AsList().Elements()) == 0
}

// reads takes in an expression that reads one thing of the device, and reports whether it is one.
func (o *onlooker) reads(e ast.Expr, in scope) bool {
	of, id, ok := step(e, in)
	if !ok {
		return false
	}
	switch of.kind {
	case wholeDevice:
		// The driver and whether a device may be allocated more than once are always seen.
		return id == "driver" || id == "allowMultipleAllocations"
	case attributeDomain:
		o.sight.attributes = union(o.sight.attributes, []read{{of.domain, id}})
		return true
	case capacityDomain:
		o.sight.capacities = union(o.sight.capacities, []read{{of.domain, id}})
		return true
	case other, allAttributes, allCapacities:
	}
	return false
}

// locate returns the part of the device, larger than one value, that the expression stands for.
func locate(e ast.Expr, in scope) place {
	if e.Kind() == ast.IdentKind {
		if name := e.AsIdent(); name != ".device" {
			return in[name]
		}
		return place{kind: wholeDevice}
	}
	if e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
		return place{}
	}
	of, id, ok := step(e, in)
	if !ok || e.Kind() == ast.CallKind && e.AsCall().FunctionName() != operators.Index {
		return place{}
	}
	return of.part(id)
}

// part returns the part of the name, when it is larger than one value.
func (p place) part(id string) place {
	switch p.kind {
	case wholeDevice:
		return map[string]place{"attributes": {kind: allAttributes}, "capacity": {kind: allCapacities}}[id]
	case allAttributes:
		return place{kind: attributeDomain, domain: id}
	case allCapacities:
		return place{kind: capacityDomain, domain: id}
	case other, attributeDomain, capacityDomain:
	}
	return place{}
}

// step returns the part of a device of which the expression takes one thing, and the name of that: x.id,
// has(x.id), x["id"], x.?id, x[?"id"] and "id" in x.
func step(e ast.Expr, in scope) (of place, id string, ok bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		return locate(s.Operand(), in), s.FieldName(), true
	}
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return place{}, "", false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		id, ok = constant(args[1])
		return locate(args[0], in), id, ok
	case operators.In:
		id, ok = constant(args[0])
		return locate(args[1], in), id, ok
	}
	return place{}, "", false
}

// constant returns the value of a literal string.
func constant(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
