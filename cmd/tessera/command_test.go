package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	tests := map[string]struct {
		program string
		want    string
	}{
		"itself":            {"/usr/local/bin/tessera", "  tessera [command]\n"},
		"kubectl's plugin":  {"/usr/local/bin/kubectl-tessera", "  kubectl tessera [command]\n"},
		"plugin on Windows": {"kubectl-tessera.exe", "  kubectl tessera [command]\n"},
	}
	for name, test := range tests {
		root := command(test.program)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"--help"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
	var verbs []string
	for _, verb := range command("tessera").Commands() {
		verbs = append(verbs, verb.Name())
	}
	for _, verb := range []string{"gpus", "doctor", "claims", "explain", "defrag", "check", "migrate", "template", "status", "quota", "upgrade", "remediation", "support-bundle", "version"} {
		if !slices.Contains(verbs, verb) {
			t.Errorf("no verb %s among %v", verb, verbs)
		}
	}
}
