package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/installer/crds"
)

// TestCommentsHaveDefaults checks that the comment of each field states the default that the code sets.
func TestCommentsHaveDefaults(t *testing.T) {
	t.Parallel()
	defaults, err := defaultsByKind()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, kind := range []string{"ClusterPolicy", "NVIDIADriver"} {
		fields, err := crds.Fields(kind, "spec")
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range fields {
			has := func(path string) bool {
				return slices.ContainsFunc(fields, func(f crds.Field) bool { return f.Path == path })
			}
			component := has(field.Path + ".imagePullPolicy")
			value := strings.Trim(preset(defaults[kind], field, component), "`")
			holder, enabled := strings.CutSuffix(field.Path, ".enabled")
			switch {
			case value == "", strings.HasPrefix(value, "["), strings.Contains(field.Path, "[]."):
				continue // no default, a list, or a default of another field
			case enabled && (has(holder+".imagePullPolicy") || holder == "spec" || value == "off"):
				continue // the comment of the component has the default
			case value == "on" || value == "off":
				value += " by default"
			}
			compared++
			words := strings.ToLower(prose(field.Description))
			if !strings.Contains(words, "default") || !strings.Contains(words, strings.ToLower(value)) {
				t.Errorf("%s %s: the default is %s, the comment is: %s", kind, field.Path, value, field.Description)
			}
		}
	}
	if compared < 60 {
		t.Errorf("%d defaults compared, want all", compared)
	}
}
