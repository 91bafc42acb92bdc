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
# API of the installer

All kinds are in ` + "`tessera.dev/v1alpha1`" + ` and cluster-scoped.

| kind | written by | content |
|---|---|---|
| ClusterPolicy | you | the configuration of all GPU nodes; one object, named ` + "`default`" + ` |
| NVIDIADriver | you | another driver for some nodes |
| GPUNode | the installer | desired and observed state of one GPU node |

The installer writes every status. ` + "`kubectl wait --for=condition=Ready gpupolicy/default`" + ` returns when every selected node is ready.
` + "`tessera migrate`" + ` converts the ClusterPolicy of NVIDIA's GPU Operator.

- An absent field has the listed default.
- A duration is a number with a unit, such as 90s, 15m or 1h30m.
- A percentage refers to the number of affected GPU nodes.
- Named ConfigMaps and Secrets are in the installer's namespace.
`

const componentHeading = `
## Components

A field of the type *component* has the following fields and those that are listed for it. Its default is that of its field enabled.

`

// kinds are the sections of the page.
var kinds = []struct{ kind, introduction string }{
	{"ClusterPolicy", "The configuration of all GPU nodes of a cluster."},
	{"NVIDIADriver", "The driver of some nodes, which replaces that of the ClusterPolicy. All fields but the last two have the meaning of `spec.driver` of a ClusterPolicy."},
	{"GPUNode", "The desired and observed state of one GPU node, with the node's name. It shows why a node is not ready: `kubectl get gpunodes`."},
}

// renderInstaller returns docs/installer-api.md: fields and descriptions of the CRDs, with the defaults of the code.
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
		writeEntry(&page, fmt.Sprintf("`%s` (%s)", field.Path, kindOf(field)), effect(field))
	}
	for _, section := range kinds {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", section.kind, section.introduction)
		for _, part := range []string{"spec", "status"} {
			fields, err := crds.Fields(section.kind, part)
			if err != nil {
				return "", err
			}
			writeFields(&page, fields, common, defaults[section.kind])
		}
	}
	return page.String(), nil
}

// componentFields returns the fields of every component; their paths are the bare names.
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

// writeFields writes a list of the fields without those of every component.
func writeFields(page *strings.Builder, fields, common []crds.Field, defaults any) {
	part, _, _ := strings.Cut(fields[0].Path, ".")
	fmt.Fprintf(page, "\n### %s\n\n", part)
	for _, field := range fields {
		if isCommon(field, common) {
			continue
		}
		typed := kindOf(field)
		component := slices.ContainsFunc(fields, func(f crds.Field) bool { return f.Path == field.Path+".imagePullPolicy" })
		if component {
			typed = "component"
		}
		if value := preset(defaults, field, component); value != "" && part == "spec" {
			typed += ", default " + value
		}
		writeEntry(page, fmt.Sprintf("`%s` (%s)", field.Path, typed), effect(field))
	}
}

// isCommon reports whether the field is one of every component with the common description.
func isCommon(field crds.Field, common []crds.Field) bool {
	return slices.ContainsFunc(common, func(c crds.Field) bool {
		return strings.HasSuffix(field.Path, "."+c.Path) && field.Description == c.Description
	})
}

// kindOf returns the type of a field with its enum.
func kindOf(field crds.Field) string {
	if len(field.Enum) == 0 {
		return field.Type
	}
	return field.Type + ": `" + strings.Join(field.Enum, "`, `") + "`"
}

// effect returns the description of a field as Markdown.
func effect(field crds.Field) string {
	return strings.ReplaceAll(prose(field.Description), "<", "&lt;")
}

// defaultsByKind returns the completed specs of empty objects as JSON values.
func defaultsByKind() (map[string]any, error) {
	policy := v1alpha1.ClusterPolicySpec{
		NodeAgent: v1alpha1.NodeAgentSpec{Config: &v1alpha1.NodeConfigSpec{}}, Upgrade: v1alpha1.UpgradePolicy{Window: &v1alpha1.MaintenanceWindow{}},
	}.Complete()
	*policy.NodeAgent.Config = v1alpha1.Default().NodeConfigSpec
	policy.Upgrade.Window.Days = nil // all days: the field's comment is shorter
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

// preset returns the default of a field; for a component, whether it is enabled.
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
