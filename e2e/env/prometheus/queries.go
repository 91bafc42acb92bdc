package prometheus

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// File returns the text of a file of deployments/monitoring.
func File(name string) ([]byte, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(source, "deployments", "monitoring", name))
}

// Queries are queries by what they are for.
type Queries map[string]string

// Sorted returns names and queries in the same order.
func (q Queries) Sorted() (names, queries []string) {
	names = slices.Sorted(maps.Keys(q))
	for _, name := range names {
		queries = append(queries, q[name])
	}
	return names, queries
}

// variables replaces a dashboard's variables as Grafana does when all values are selected.
var variables = strings.NewReplacer("$__rate_interval", "2m", "$node", ".*", "$gpu", ".*", "$namespace", ".*")

// labelValues matches the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// Dashboard returns every query of a dashboard by panel, and those of its variables.
func Dashboard(name string) (Queries, error) {
	text, err := File(filepath.Join("dashboards", name+".json"))
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, fmt.Errorf("read dashboard %s: %w", name, err)
	}
	queries := Queries{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries[fmt.Sprintf("%s, %s %s", name, panel.Title, target.RefID)] = variables.Replace(target.Expr)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Definition == "" {
			continue
		}
		parts := labelValues.FindStringSubmatch(variables.Replace(variable.Definition))
		if parts == nil {
			return nil, fmt.Errorf("read dashboard %s: variable %s has the query %s", name, variable.Name, variable.Definition)
		}
		queries[name+", variable "+variable.Name] = fmt.Sprintf("count by (%s) (%s)", parts[2], parts[1])
	}
	return queries, nil
}

// Rules returns the expressions of the alerts and of the recording rules of groups.
func Rules(groups ...string) (alerts, records Queries, err error) {
	text, err := File("rules.yaml")
	if err != nil {
		return nil, nil, err
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, nil, fmt.Errorf("read the rules: %w", err)
	}
	alerts, records = Queries{}, Queries{}
	for _, group := range file.Groups {
		if !slices.Contains(groups, group.Name) {
			continue
		}
		for _, rule := range group.Rules {
			if rule.Record != "" {
				records[rule.Record] = rule.Expr
			} else {
				alerts[rule.Alert] = rule.Expr
			}
		}
	}
	return alerts, records, nil
}
