package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// policyName names the policy for parameters and its binding, policyFile is their manifest.
const (
	policyName = "parameters.gpu.tessera.dev"
	policyFile = "admission-params.yaml"
)

// drivers returns the driver names whose parameters the policy reads.
func drivers() []string { return []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName} }

const policyHead = `# Generated from the schema of the parameters (api/params) by e2e/repo/generate; do not edit.
#
# Refuses invalid opaque parameters when a claim, a template or a DeviceClass is written. The node agent refuses what a policy cannot detect:
# repeated fields, and parameters of another type than the allocated device.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: %[1]s
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [resourceclaims, resourceclaimtemplates, deviceclasses]
  matchConditions:
  - name: parameters-are-new # objects from before the policy can be deleted, and changed outside of spec
    expression: request.operation == 'CREATE' || object.spec != oldObject.spec
`

const policyTail = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: %[1]s
spec:
  policyName: %[1]s
  validationActions: [Deny]
`

// policy is a ValidatingAdmissionPolicy under construction.
type policy struct {
	variables, validations []rule
}

// rule is a variable with its name, or a validation with its message and optionally an expression for a message with more details.
type rule struct{ label, expression, detail string }

// renderPolicy returns the policy that checks parameters of the kinds, and its binding.
func renderPolicy(kinds []params.Kind) string {
	var p policy
	p.variable("holder", `request.resource.resource == 'deviceclasses' ? dyn(object).spec : `+
		`request.resource.resource == 'resourceclaimtemplates' ? dyn(object).spec.spec.?devices.orValue(dyn({})) : dyn(object).spec.?devices.orValue(dyn({}))`)
	p.variable("configs", "has(variables.holder.config) ? variables.holder.config : []")
	p.variable("ours", fmt.Sprintf("variables.configs.filter(c, has(c.opaque) && c.opaque.driver in %s)", list(drivers())))
	for _, driver := range drivers() {
		p.known(driver, kinds)
	}
	for _, kind := range kinds {
		p.variable(kind.Name, fmt.Sprintf("variables.ours.filter(c, %s).map(c, c.opaque.parameters)", is(kind)))
		fields := append([]params.Field{{Name: "apiVersion"}, {Name: "kind"}}, kind.Fields...)
		p.unknown(kind.Name, "", kind.Name, fields, kind.Fields)
		p.object(kind.Name, "", kind.Name, kind.Fields)
	}
	return p.render()
}

func (p *policy) variable(name, expression string) {
	p.variables = append(p.variables, rule{label: name, expression: expression})
}

func (p *policy) demand(message, expression string) {
	p.validations = append(p.validations, rule{label: message, expression: expression})
}

// known requires one of the kinds that the driver accepts.
func (p *policy) known(driver string, kinds []params.Kind) {
	var accepted []string
	for _, kind := range kinds {
		if kind.Driver == "" || kind.Driver == driver {
			accepted = append(accepted, is(kind))
		}
	}
	p.demand(fmt.Sprintf("parameters for %s: apiVersion, kind: must be one of %s", driver, params.Offered(driver)),
		fmt.Sprintf("variables.ours.all(c, c.opaque.driver != '%s' || %s)", driver, strings.Join(accepted, " || ")))
}

// is returns the condition that a configuration has parameters of the kind.
func is(kind params.Kind) string {
	return fmt.Sprintf("(%s && %s)", equals("c.opaque.parameters.apiVersion", kind.APIVersion), equals("c.opaque.parameters.kind", kind.Name))
}

// equals returns the condition that the field is present and has the text.
func equals(field, text string) string {
	return fmt.Sprintf("has(%[1]s) && %[1]s == '%[2]s'", field, text)
}

// unknown requires that the objects in the variable have no other fields.
func (p *policy) unknown(kind, prefix, variable string, fields, listed []params.Field) {
	at := strings.TrimSuffix(prefix, ".")
	if at != "" {
		at += ": "
	}
	p.demand(fmt.Sprintf("%s: %sunknown field: %s", kind, at, params.Known(listed)), fmt.Sprintf("variables.%s.all(o, o.all(name, name in %s))", variable, list(names(fields))))
}

// object requires that the fields of the objects in the variable match the schema.
func (p *policy) object(kind, prefix, variable string, fields []params.Field) {
	for _, f := range fields {
		value := "o." + f.Name
		absent := fmt.Sprintf("!has(%[1]s) || %[1]s == null", value)
		require := func(demand, condition string) {
			p.demand(fmt.Sprintf("%s: %s%s: %s", kind, prefix, f.Name, demand), fmt.Sprintf("variables.%s.all(o, %s)", variable, condition))
		}
		if f.FromClass {
			require(params.FromClassDemand, "request.resource.resource == 'deviceclasses' || "+absent)
		}
		if f.When != nil {
			require(f.When.Demand(), absent+" || "+equals("o."+f.When.Field, f.When.Value))
		}
		switch {
		case f.Required:
			require(f.Demand(), fmt.Sprintf("has(%s) && %s", value, permits(f, value)))
		default:
			require(f.Demand(), absent+" || "+permits(f, value))
		}
		if f.Type == params.Sizes {
			inner := variable + "_" + f.Name
			p.variable(inner, fmt.Sprintf("variables.%[1]s.filter(o, has(%[2]s) && %[3]s).map(o, %[2]s)", variable, value, permits(f, value)))
			p.each(fmt.Sprintf("%s: %s%s", kind, prefix, f.Name), inner, f.KeyDemand(), fmt.Sprintf("k.matches('%s')", f.Keys.Pattern))
			p.each(fmt.Sprintf("%s: %s%s", kind, prefix, f.Name), inner, f.EntryDemand(), permits(f.Value(), "o[k]"))
		}
		if f.Type == params.Object {
			inner := variable + "_" + f.Name
			p.variable(inner, fmt.Sprintf("variables.%[1]s.filter(o, has(%[2]s) && type(%[2]s) == map).map(o, %[2]s)", variable, value))
			p.unknown(kind, prefix+f.Name+".", inner, f.Fields, f.Fields)
			p.object(kind, prefix+f.Name+".", inner, f.Fields)
		}
	}
}

// each requires the condition of each key k of each object o in the variable. The message names the first key that does not have it.
func (p *policy) each(at, variable, demand, condition string) {
	p.validations = append(p.validations, rule{
		label:      fmt.Sprintf("%s: %s", at, demand),
		expression: fmt.Sprintf("variables.%s.all(o, o.all(k, %s))", variable, condition),
		detail: fmt.Sprintf("'%[1]s[' + variables.%[2]s.filter(o, !o.all(k, %[3]s)).map(o, o.filter(k, !(%[3]s))[0])[0] + ']: %[4]s'",
			at, variable, condition, demand),
	})
}

// permits returns the condition that the value v, which is not null, is valid for the field.
func permits(f params.Field, v string) string {
	switch f.Type {
	case params.Object:
		return fmt.Sprintf("type(%s) == map", v)
	case params.Choice:
		return fmt.Sprintf("%s in %s", v, list(f.Values))
	case params.Choices:
		return fmt.Sprintf("(type(%[1]s) == list && %[1]s.size() <= %[2]d && %[1]s.all(x, x in %[3]s && %[1]s.exists_one(y, y == x)))", v, len(f.Values), list(f.Values))
	case params.Number:
		return fmt.Sprintf("(type(%[1]s) == int && %[1]s >= %[2]d && %[1]s <= %[3]d)", v, f.Least, f.Most)
	case params.Truth:
		return fmt.Sprintf("type(%s) == bool", v)
	case params.Size:
		return fmt.Sprintf("(type(%[1]s) == int && %[1]s >= %[2]d && %[1]s <= %[3]d) || "+
			"(type(%[1]s) == string && %[1]s.matches('%[4]s') && quantity(%[1]s).compareTo(quantity('%[5]s')) >= 0 && quantity(%[1]s).compareTo(quantity('%[6]s')) <= 0)",
			v, f.Least, f.Most, params.SizePattern, quantity(f.Least), quantity(f.Most))
	case params.Sizes:
		return fmt.Sprintf("(type(%[1]s) == map && %[1]s.size() <= %[2]d)", v, params.MostKeys)
	}
	return "false"
}

func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

func names(fields []params.Field) []string {
	var list []string
	for _, f := range fields {
		list = append(list, f.Name)
	}
	return list
}

// list writes texts as a list in CEL.
func list(texts []string) string { return "['" + strings.Join(texts, "', '") + "']" }

func (p *policy) render() string {
	var text strings.Builder
	fmt.Fprintf(&text, policyHead, policyName)
	text.WriteString("  variables:\n")
	for _, v := range p.variables {
		fmt.Fprintf(&text, "  - name: %s\n    expression: >-\n      %s\n", v.label, v.expression)
	}
	text.WriteString("  validations:\n")
	for _, v := range p.validations {
		fmt.Fprintf(&text, "  - expression: >-\n      %s\n    message: >-\n      %s\n", v.expression, v.label)
		if v.detail != "" {
			fmt.Fprintf(&text, "    messageExpression: >-\n      %s\n", v.detail)
		}
	}
	fmt.Fprintf(&text, policyTail, policyName)
	return text.String()
}
