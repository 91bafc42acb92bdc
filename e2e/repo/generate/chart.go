package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// chartFolder is the folder of the chart's files that are generated from the manifests, below deployments/.
const chartFolder = "helm/tessera/templates/shared"

// manifestNamespace is the namespace of the plain manifests; the chart replaces it with the release's.
const manifestNamespace = "tessera-system"

// manifestPullSecrets is the variable of an admission policy that the chart replaces with the pull secrets of the node agent.
const manifestPullSecrets = `  - name: pullSecrets # those of the agent's DaemonSet, such as ['registry']
    expression: "[]"
`

const chartHead = `# Generated from deployments/%s by e2e/repo/generate; do not edit.
`

// shared are the manifests that the chart contains as well, each with the named template whose text is empty when they are
// omitted.
func shared() []struct{ manifest, when string } {
	return []struct{ manifest, when string }{
		{"rbac.yaml", ""},
		{"admission.yaml", ""},
		{"admission-mps.yaml", ""},
		{"admission-monitor.yaml", ""},
		{"admission-params.yaml", ""},
		{"deviceclasses.yaml", ""},
		{"deviceclasses-profiles.yaml", ""},
		{"scheduler/common/rbac.yaml", ""},
		{"scheduler/common/admission.yaml", "tessera.scheduler"},
		{"scheduler/additional/schedulername.yaml", "tessera.additionalScheduler"},
	}
}

// writeChart writes the templates of the chart that are generated from manifests, and removes those without a manifest.
func writeChart(deployments string) error {
	folder := filepath.Join(deployments, chartFolder)
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	files := map[string]string{}
	for _, s := range shared() {
		text, err := os.ReadFile(filepath.Join(deployments, s.manifest))
		if err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		template, err := chartTemplate(s.manifest, string(text), s.when)
		if err != nil {
			return err
		}
		files[chartFile(s.manifest)] = template
	}
	return write(folder, files)
}

// chartFile names the template of a manifest: scheduler/common/rbac.yaml is scheduler-rbac.yaml.
func chartFile(manifest string) string {
	folder, file := filepath.Split(manifest)
	if folder == "" {
		return file
	}
	top, _, _ := strings.Cut(folder, "/")
	return top + "-" + file
}

// chartTemplate returns the manifest as a template of the chart.
func chartTemplate(manifest, text, when string) (string, error) {
	if strings.Contains(text, "{{") {
		return "", fmt.Errorf("write the chart: %s contains {{, which Helm would evaluate", manifest)
	}
	text = strings.ReplaceAll(text, "namespace: "+manifestNamespace, "namespace: {{ .Release.Namespace | quote }}")
	text = strings.ReplaceAll(text, manifestNamespace, "{{ .Release.Namespace }}")
	text = strings.ReplaceAll(text, manifestPullSecrets, "  - name: pullSecrets\n    expression: {{ include \"tessera.pullSecrets\" . | quote }}\n")
	text = fmt.Sprintf(chartHead, manifest) + text
	if when != "" {
		text = fmt.Sprintf("{{- if include %q . }}\n%s{{- end }}\n", when, text)
	}
	return text, nil
}
