package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/crds"
)

const installerHead = `<!-- Generated from api/v1alpha1 by e2e/repo/generate; do not edit. -->
# The installer's objects, field by field

` + "`tessera.dev/v1alpha1`" + `, cluster-scoped. You write **ClusterPolicy** (there is one, named ` + "`default`" + `) and, where some nodes need another driver,
**NVIDIADriver**; the installer writes **GPUNode**, one for each GPU node, and every status. What a ClusterPolicy of another operator
becomes: ` + "`tessera migrate`" + `.

An absent field has the default that stands here. A duration is a number with a unit, such as 90s, 15m or 1h30m. A percentage is of the GPU
nodes concerned. Names of ConfigMaps and Secrets are of the installer's namespace.

` + "`kubectl wait --for=condition=Ready clusterpolicy/default`" + ` returns when every chosen node is ready.
`

const componentHeading = `
## Components

Fields of the type *component* have these fields, beside those listed at their place. Whether a component is on by default stands there.

| field | type | effect |
|---|---|---|
`

// kinds are the chapters of the page.
var kinds = []struct{ kind, introduction string }{
	{"ClusterPolicy", "What an administrator decides for all GPU nodes of a cluster."},
	{"NVIDIADriver", "The driver of some nodes, in the place of ClusterPolicy's. All its fields but the last two decide what `spec.driver` of a ClusterPolicy decides."},
	{"GPUNode", "What is desired and known of one GPU node; it has the node's name. Read it to see why a node stands where it stands: `kubectl get gpunodes`."},
}

// renderInstaller returns the page about the kinds of the installer: fields and effects as the CRDs say, defaults as the code sets them.
func renderInstaller() (string, error) {
	defaults, err := defaultsByKind()
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(installerHead + componentHeading)
	common, err := componentFields()
	if err != nil {
		return "", err
	}
	for _, field := range common {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", field.Path, kindOf(field), effect(field))
	}
	for _, chapter := range kinds {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", chapter.kind, chapter.introduction)
		for _, part := range []string{"spec", "status"} {
			fields, err := crds.Fields(chapter.kind, part)
			if err != nil {
				return "", err
			}
			writeFields(&page, fields, common, defaults[chapter.kind])
		}
	}
	return page.String(), nil
}

// componentFields are the fields that every component has, by their names alone.
func componentFields() ([]crds.Field, error) {
	fields, err := crds.Fields("ClusterPolicy", "spec")
	if err != nil {
		return nil, err
	}
	var common []crds.Field
	for _, field := range fields {
		if name, ok := strings.CutPrefix(field.Path, "spec.dcgm."); ok {
			field.Path = name
			common = append(common, field)
		}
	}
	return common, nil
}

// writeFields writes a table of the fields, without those that every component has.
func writeFields(page *strings.Builder, fields, common []crds.Field, defaults any) {
	if strings.HasPrefix(fields[0].Path, "status.") {
		page.WriteString("\n| field | type | meaning |\n|---|---|---|\n")
	} else {
		page.WriteString("\n| field | type | default | effect |\n|---|---|---|---|\n")
	}
	for _, field := range fields {
		if isCommon(field, common) {
			continue
		}
		typed := kindOf(field)
		component := slices.ContainsFunc(fields, func(f crds.Field) bool { return f.Path == field.Path+".imagePullPolicy" })
		if component {
			typed = "component"
		}
		if strings.HasPrefix(field.Path, "status.") {
			fmt.Fprintf(page, "| `%s` | %s | %s |\n", field.Path, typed, effect(field))
			continue
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", field.Path, typed, preset(defaults, field, component), effect(field))
	}
}

// isCommon reports whether the field is one of a component's that says nothing else than elsewhere.
func isCommon(field crds.Field, common []crds.Field) bool {
	return slices.ContainsFunc(common, func(c crds.Field) bool {
		return strings.HasSuffix(field.Path, "."+c.Path) && field.Description == c.Description
	})
}

// kindOf is the type of a field with the values that it may have.
func kindOf(field crds.Field) string {
	if len(field.Enum) == 0 {
		return field.Type
	}
	return field.Type + ": `" + strings.Join(field.Enum, "`, `") + "`"
}

// effect is what a field says, as it may stand in a table.
func effect(field crds.Field) string {
	return strings.ReplaceAll(cell(prose(field.Description)), "<", "&lt;")
}

// defaultsByKind are the specs of objects in which nothing is decided, as JSON values.
func defaultsByKind() (map[string]any, error) {
	policy := v1alpha1.ClusterPolicySpec{
		NodeAgent: v1alpha1.NodeAgentSpec{Config: &v1alpha1.NodeConfigSpec{}}, Upgrade: v1alpha1.UpgradePolicy{Window: &v1alpha1.MaintenanceWindow{}},
	}.Complete()
	*policy.NodeAgent.Config = v1alpha1.Default().NodeConfigSpec
	policy.Upgrade.Window.Days = nil // every one: its comment says it shorter
	defaults := map[string]any{}
	for kind, spec := range map[string]any{
		"ClusterPolicy": policy,
		"NVIDIADriver":  v1alpha1.NVIDIADriverSpec{DriverSpec: v1alpha1.DriverSpec{}.Complete(), Upgrade: &policy.Upgrade},
	} {
		text, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			return nil, err
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, err
		}
		defaults[kind] = value
	}
	return defaults, nil
}

// preset is the default of a field as it is written in a table; of a component, whether it is on.
func preset(defaults any, field crds.Field, component bool) string {
	path := strings.Split(field.Path, ".")
	if component {
		path = append(path, "enabled")
	}
	value := defaults
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = object[name]
	}
	switch v := value.(type) {
	case nil:
		if field.Type == "boolean" {
			return "off"
		}
		return ""
	case map[string]any:
		return ""
	case string:
		if v == "" || v == "0s" {
			return ""
		}
		return "`" + strings.TrimSuffix(strings.TrimSuffix(v, "0s"), "h0m") + "`"
	case bool:
		return map[bool]string{true: "on", false: "off"}[v]
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return "`" + string(text) + "`"
}
