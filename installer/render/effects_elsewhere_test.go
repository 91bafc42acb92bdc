package render_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shown names the test that shows what a field does to nodes: its folder below installer, and its function.
type shown struct{ folder, test string }

// elsewhere are the fields of a kind whose effect is not an object but what the installer does to nodes.
func elsewhere(kind string) map[string]shown {
	all := map[string]shown{}
	add := func(prefix string, fields map[string]shown) {
		for field, by := range fields {
			all[prefix+field] = by
		}
	}
	add("spec.upgrade.", upgradeShown)
	if kind == "NVIDIADriver" {
		add("spec.", driverShown)
		add("spec.", map[string]shown{"default": nodes, "nodeSelector": nodes})
		return all
	}
	add("spec.driver.", driverShown)
	add("spec.", policyShown)
	return all
}

// The tests, each a table with a case for every field that it shows.
var (
	nodes      = shown{"controller/catalog", "TestFieldsDecideAboutNodes"}
	leaving    = shown{"controller/drain", "TestDrainFieldsDecideWhoLeaves"}
	written    = shown{"controller/node", "TestFieldsDecideWhatIsWrittenOnNodes"}
	proof      = shown{"controller/node", "TestValidatorFieldsDecideWhatIsProven"}
	validator  = shown{"action", "TestValidatorFieldsReachItsPods"}
	faultyGPUs = shown{"controller/remediation", "TestFieldsDecideAboutFaultyGPUs"}
	emptying   = shown{"controller/remediation", "TestRemediationDrainsDecideWhoLeaves"}
	beginning  = shown{"rollout", "TestFieldsDecideWhoBegins"}
)

var driverShown = map[string]shown{"enabled": nodes, "hostDriver": nodes, "minVersion": nodes}

var upgradeShown = map[string]shown{
	"attempts": beginning, "auto": beginning, "canary": beginning, "failureBudget": beginning, "maxParallel": beginning, "maxUnavailable": beginning,
	"retryAfter": beginning, "soak": beginning,
	"window.days": beginning, "window.duration": beginning, "window.start": beginning, "window.timeZone": beginning,
	"drain.deleteEmptyDir": leaving, "drain.force": leaving, "drain.waitFor": leaving, "drain.timeout": nodes, "drain.waitTimeout": nodes,
}

var policyShown = map[string]shown{
	"featureLabels.enabled": written, "readinessTaint": written,
	"nodeAgent.pools[].migMode": nodes, "nodeAgent.pools[].nodeSelector": nodes,
	"sandboxWorkloads.nodeSelector": nodes, "vgpuManager.enabled": nodes, "vgpuManager.nodeSelector": nodes,
	"validator.args": validator, "validator.env": validator, "validator.image": validator, "validator.imagePullPolicy": validator,
	"validator.imagePullSecrets": validator, "validator.resources": validator, "validator.timeout": validator, "validator.tolerations": validator,
	"validator.enabled": nodes, "validator.mig": proof,
	"remediation.mode": faultyGPUs, "remediation.attempts": faultyGPUs, "remediation.maxParallel": faultyGPUs, "remediation.reboot": faultyGPUs,
	"remediation.drain.timeout": faultyGPUs, "remediation.drain.waitTimeout": faultyGPUs,
	"remediation.drain.deleteEmptyDir": emptying, "remediation.drain.force": emptying, "remediation.drain.waitFor": emptying,
}

// check looks for the test, and for the field in its file: a test that does not write the field's name shows nothing of it.
func (s shown) check(t *testing.T, field string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", s.folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !declares(parsed, s.test) {
			continue
		}
		if !mentions(parsed, field) {
			t.Errorf("%s in %s does not mention the field %s", s.test, file, field)
		}
		return
	}
	t.Errorf("installer/%s has no test %s, which covers the field", s.folder, s.test)
}

func declares(file *ast.File, test string) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Name.Name == test
	})
}

// mentions reports whether the file names the last part of the field's path as Go does, whatever its case: MIG for mig.
func mentions(file *ast.File, field string) bool {
	name, found := field[strings.LastIndex(field, ".")+1:], false
	ast.Inspect(file, func(n ast.Node) bool {
		if identifier, ok := n.(*ast.Ident); ok && strings.EqualFold(identifier.Name, name) {
			found = true
		}
		return !found
	})
	return found
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
