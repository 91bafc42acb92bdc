package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// chartFolder is the folder of the chart's files that are generated from the manifests, chartDashboards that of its dashboards, below deployments/.
const (
	chartFolder     = "helm/tessera/templates/shared"
	chartDashboards = "helm/tessera/files/dashboards"
)

// manifestNamespace is the namespace of the plain manifests; the chart replaces it with the release's.
const manifestNamespace = "tessera-system"

// manifestPullSecrets is the variable of an admission policy that the chart replaces with the pull secrets of the node agent.
const manifestPullSecrets = `  - name: pullSecrets # those of the agent's DaemonSet, such as ['registry']
    expression: "[]"
`

// chartDriver is the chart's text for the driver's name. With NVIDIA's, the extended resource belongs to NVIDIA's DeviceClass.
const (
	chartDriver       = `{{ include "tessera.driver" . }}`
	manifestWholeGPUs = "  extendedResourceName: " + wholeGPUName + "\n"
	chartWholeGPUs    = `{{- if not (include "tessera.nvidia" .) }}` + "\n" + manifestWholeGPUs + "{{- end }}\n"
)

// chartLabels are the labels that the chart adds to every object. The manifests have none.
const (
	manifestMetadata = "\nmetadata:\n"
	chartLabels      = "  labels: {{- include %q $ | nindent 4 }}\n"
)

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
		{policyFile, ""},
		{"deviceclasses.yaml", ""},
		{"deviceclasses-profiles.yaml", ""},
		{"nvidia/deviceclasses.yaml", "tessera.nvidia"},
		{"scheduler/common/rbac.yaml", ""},
		{"scheduler/common/admission.yaml", "tessera.scheduler"},
		{"scheduler/additional/schedulername.yaml", "tessera.additionalScheduler"},
		{"monitoring/account.yaml", "tessera.podMonitors"},
		{"monitoring/podmonitor.yaml", "tessera.podMonitors"},
		{"monitoring/podmonitor-installer.yaml", "tessera.podMonitors"},
		{"monitoring/podmonitor-scheduler.yaml", "tessera.podMonitors"},
		{"monitoring/prometheusrule.yaml", "tessera.rules"},
	}
}

// writeChart writes the templates of the chart that are generated from manifests, and removes those without a manifest.
func writeChart(deployments string) error {
	files := map[string]string{}
	for _, s := range shared() {
		text, err := os.ReadFile(filepath.Join(deployments, s.manifest))
		if err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		files[chartFile(s.manifest)] = chartTemplate(s.manifest, string(text), s.when)
	}
	return replaceFolder(filepath.Join(deployments, chartFolder), files)
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
func chartTemplate(manifest, text, when string) string {
	text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`) // Prometheus' templates
	text = strings.ReplaceAll(text, "namespace: "+manifestNamespace, "namespace: {{ .Release.Namespace | quote }}")
	text = strings.ReplaceAll(text, manifestNamespace, "{{ .Release.Namespace }}")
	if manifest != policyFile && driverText.MatchString(text) { // the file contains both names of the driver
		text = withChartDriver(text)
	}
	labels := "tessera.labels"
	if strings.HasPrefix(manifest, "monitoring/") {
		labels = "tessera.monitoringLabels"
	}
	text = strings.ReplaceAll(text, manifestMetadata, manifestMetadata+fmt.Sprintf(chartLabels, labels))
	text = strings.ReplaceAll(text, manifestPullSecrets, "  - name: pullSecrets\n    expression: {{ include \"tessera.pullSecrets\" . | quote }}\n")
	text = fmt.Sprintf(chartHead, manifest) + text
	if when != "" {
		text = fmt.Sprintf("{{- if include %q . }}\n%s{{- end }}\n", when, text)
	}
	return text
}

// withChartDriver returns the manifests with the chart's text for the driver's name, except in comments and in the metadata of the objects. It is the same
// as renamed with NVIDIA's name (TestChartIsTheComponent of e2e/repo/verify).
func withChartDriver(text string) string {
	lines := strings.SplitAfter(text, "\n")
	metadata := false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "metadata:"):
			metadata = true
		case line != "" && !strings.ContainsAny(line[:1], " #\n"):
			metadata = false
		}
		switch {
		case line == manifestWholeGPUs:
			lines[i] = chartWholeGPUs
		case !metadata && !strings.HasPrefix(strings.TrimSpace(line), "#"):
			lines[i] = driverText.ReplaceAllString(line, "${1}"+chartDriver+"${2}")
		}
	}
	return strings.Join(lines, "")
}
