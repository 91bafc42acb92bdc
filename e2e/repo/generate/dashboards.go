package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// dashboardsFile has the descriptions of the dashboards, dashboardsFolder Grafana's files that are written from them, below deployments/monitoring.
const (
	dashboardsFile   = "dashboards.yaml"
	dashboardsFolder = "dashboards"
)

// dashboard describes a dashboard.
type dashboard struct {
	Name, Title, Description string
	// Variables are names of variables that a viewer selects.
	Variables []string
	Rows      []struct {
		Title  string
		Panels []panel
	}
}

// panel describes a panel: a time series, or one number.
type panel struct {
	Title, Description, Unit string
	Stat, Stacked            bool
	Max                      *float64
	// Alarm is the value from which a number is red.
	Alarm   *float64
	Width   int
	Queries []struct{ Expr, Legend string }
}

// jsonObject is an object of Grafana's format.
type jsonObject = map[string]any

// The grid of a dashboard.
const (
	gridWidth  = 24
	statHeight = 4
	rowHeight  = 1
	height     = 8
)

// variables are the definitions of the variables by name. Each depends on those before it.
var variables = map[string]jsonObject{
	"node":      variable("node", "Node", "label_values(tessera_gpu_up, node)"),
	"gpu":       variable("gpu", "GPU", `label_values(tessera_gpu_up{node=~"$node"}, gpu)`),
	"namespace": variable("namespace", "Namespace", `label_values(tessera_device_pod_info{node=~"$node",gpu=~"$gpu"}, namespace)`),
}

func variable(name, label, query string) jsonObject {
	return jsonObject{
		"name": name, "label": label, "type": "query", "datasource": source(), "query": jsonObject{"query": query, "refId": name}, "definition": query,
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": jsonObject{"text": []string{"All"}, "value": []string{"$__all"}},
	}
}

// source is the data source that the viewer selects.
func source() jsonObject { return jsonObject{"type": "prometheus", "uid": "${datasource}"} }

// writeMonitoring writes the dashboards and the rules for the Prometheus operator, and the chart's copies of the dashboards.
func writeMonitoring(deployments string) error {
	monitoring := filepath.Join(deployments, "monitoring")
	dashboards, err := renderDashboards(monitoring)
	if err != nil {
		return err
	}
	for _, folder := range []string{filepath.Join(monitoring, dashboardsFolder), filepath.Join(deployments, chartDashboards)} {
		if err := replaceFolder(folder, dashboards); err != nil {
			return err
		}
	}
	rules, err := os.ReadFile(filepath.Join(monitoring, "rules.yaml"))
	if err != nil {
		return fmt.Errorf("render the rules: %w", err)
	}
	return write(monitoring, map[string]string{"prometheusrule.yaml": renderRules(string(rules))})
}

const rulesHead = `# Generated from rules.yaml by e2e/repo/generate; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tessera
  namespace: tessera-system
spec:
`

// renderRules returns the rules as an object of the Prometheus operator.
func renderRules(rules string) string {
	var text strings.Builder
	text.WriteString(rulesHead)
	_, groups, _ := strings.Cut(rules, "\ngroups:\n")
	for line := range strings.Lines("groups:\n" + groups) {
		text.WriteString("  " + line)
	}
	return text.String()
}

// renderDashboards returns the files of the dashboards by name, such as fleet.json.
func renderDashboards(monitoring string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(monitoring, dashboardsFile))
	if err != nil {
		return nil, fmt.Errorf("render the dashboards: %w", err)
	}
	var all struct{ Dashboards []dashboard }
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return nil, fmt.Errorf("render the dashboards: %s: %w", dashboardsFile, err)
	}
	files := map[string]string{}
	for _, d := range all.Dashboards {
		rendered, err := json.MarshalIndent(d.render(), "", " ")
		if err != nil {
			return nil, fmt.Errorf("render the dashboard %s: %w", d.Name, err)
		}
		files[d.Name+".json"] = string(rendered) + "\n"
	}
	return files, nil
}

func (d dashboard) render() jsonObject {
	selected := []jsonObject{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": jsonObject{}, "refresh": 1}}
	for _, name := range d.Variables {
		selected = append(selected, variables[name])
	}
	return jsonObject{
		"uid": "tessera-" + d.Name, "title": d.Title, "description": d.Description, "tags": []string{"tessera", "gpu"}, "schemaVersion": 39, "version": 1,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "time": jsonObject{"from": "now-3h", "to": "now"}, "timezone": "browser",
		"annotations": jsonObject{"list": []any{}}, "links": []jsonObject{{"type": "dashboards", "title": "Tessera", "tags": []string{"tessera"}, "asDropdown": true}},
		"templating": jsonObject{"list": selected}, "panels": d.panels(),
	}
}

// panels places the panels from left to right, and begins a new line when one does not fit.
func (d dashboard) panels() []jsonObject {
	var all []jsonObject
	y := 0
	for _, row := range d.Rows {
		all = append(all, jsonObject{"id": len(all) + 1, "type": "row", "title": row.Title, "collapsed": false, "panels": []any{}, "gridPos": position(0, y, gridWidth, rowHeight)})
		y += rowHeight
		x, line := 0, 0
		for _, p := range row.Panels {
			if x+p.Width > gridWidth {
				x, y, line = 0, y+line, 0
			}
			rendered := p.render()
			rendered["id"], rendered["gridPos"] = len(all)+1, position(x, y, p.Width, p.height())
			all = append(all, rendered)
			x, line = x+p.Width, max(line, p.height())
		}
		y += line
	}
	return all
}

func position(x, y, w, h int) jsonObject { return jsonObject{"x": x, "y": y, "w": w, "h": h} }

func (p panel) height() int {
	if p.Stat {
		return statHeight
	}
	return height
}

func (p panel) render() jsonObject {
	unit := p.Unit
	if unit == "" {
		unit = "none"
	}
	var targets []jsonObject
	for i, q := range p.Queries {
		targets = append(targets, jsonObject{"refId": string(rune('A' + i)), "datasource": source(), "expr": q.Expr, "legendFormat": q.Legend})
	}
	fields := jsonObject{"unit": unit}
	rendered := jsonObject{
		"title": p.Title, "description": p.Description, "datasource": source(), "targets": targets,
		"fieldConfig": jsonObject{"defaults": fields, "overrides": []any{}},
	}
	if p.Stat {
		steps := []jsonObject{{"color": "green", "value": nil}}
		if p.Alarm != nil {
			steps = append(steps, jsonObject{"color": "red", "value": *p.Alarm})
		}
		fields["thresholds"] = jsonObject{"mode": "absolute", "steps": steps}
		rendered["type"] = "stat"
		rendered["options"] = jsonObject{"reduceOptions": jsonObject{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
		return rendered
	}
	style := jsonObject{"fillOpacity": 10, "showPoints": "never"}
	if p.Stacked {
		style = jsonObject{"fillOpacity": 40, "showPoints": "never", "stacking": jsonObject{"mode": "normal"}}
	}
	fields["min"], fields["custom"] = 0, style
	if p.Max != nil {
		fields["max"] = *p.Max
	}
	rendered["type"] = "timeseries"
	rendered["options"] = jsonObject{
		"legend":  jsonObject{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
		"tooltip": jsonObject{"mode": "multi", "sort": "desc"},
	}
	return rendered
}
