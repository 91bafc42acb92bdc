package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chartReadme is the page of the chart, which registries of charts show, below deployments/.
const chartReadme = "helm/tessera/README.md"

const readmeHead = `# The chart tessera

*Generated from values.yaml by e2e/repo/generate; do not edit.*

Tessera runs NVIDIA GPUs on Kubernetes through Dynamic Resource Allocation: driver, node agent, scheduler and health. The chart installs the installer and the
GPU policy; the installer creates everything else.

- [Requirements and first steps](` + readmeDocs + `install.md)
- [Upgrades](` + readmeDocs + `upgrade.md)
- [Removal](` + readmeDocs + `uninstall.md)

` + "```" + `
helm install tessera oci://registry.example.com/tessera/charts/tessera -n tessera-system --create-namespace
kubectl wait --for=condition=Ready gpupolicy/default --timeout=30m
` + "```" + `

## Values

| value | default | meaning |
|---|---|---|
`

// readmeDocs are the pages for users. The README is also shown outside of the repository.
const readmeDocs = "https://github.com/tessera-gpu/tessera/blob/main/docs/"

// renderChartReadme lists the chart's values with their comments.
func renderChartReadme(deployments string) (string, error) {
	text, err := os.ReadFile(filepath.Join(deployments, "helm/tessera/values.yaml"))
	if err != nil {
		return "", fmt.Errorf("list the chart's values: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("list the chart's values: %w", err)
	}
	var page strings.Builder
	page.WriteString(readmeHead)
	if err := listValues(&page, "", document.Content[0]); err != nil {
		return "", fmt.Errorf("list the chart's values: %w", err)
	}
	return page.String(), nil
}

// listValues writes a row for each key of a mapping, and for those of mappings below it that are not in braces.
func listValues(page *strings.Builder, prefix string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		meaning := strings.NewReplacer("# ", "", "\n", " ", "|", `\|`).Replace(key.HeadComment)
		nested := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0
		initial := ""
		if !nested {
			text, err := inline(value)
			if err != nil {
				return err
			}
			initial = "`" + text + "`"
		}
		if initial != "" || meaning != "" {
			fmt.Fprintf(page, "| `%s%s` | %s | %s |\n", prefix, key.Value, initial, meaning)
		}
		if !nested {
			continue
		}
		if err := listValues(page, prefix+key.Value+".", value); err != nil {
			return err
		}
	}
	return nil
}

// inline returns a value on one line, without comments.
func inline(value *yaml.Node) (string, error) {
	var plain any
	if err := value.Decode(&plain); err != nil {
		return "", err
	}
	var node yaml.Node
	if err := node.Encode(plain); err != nil {
		return "", err
	}
	if node.Kind != yaml.ScalarNode {
		node.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&node)
	return strings.Join(strings.Fields(string(text)), " "), err
}
