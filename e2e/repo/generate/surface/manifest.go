package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// manifestSections lists what the files below deployments/ define.
func manifestSections(deployments string) ([]section, error) {
	chart := filepath.Join(deployments, "helm", "tessera")
	kinds, err := customKinds(filepath.Join(chart, "crds"))
	if err != nil {
		return nil, err
	}
	values, err := chartValues(chart)
	if err != nil {
		return nil, err
	}
	objects, err := manifestObjects(deployments)
	if err != nil {
		return nil, err
	}
	rules, err := ruleNames(filepath.Join(deployments, "monitoring", "rules.yaml"))
	if err != nil {
		return nil, err
	}
	return []section{
		{"Custom resources: names, printer columns, enumerated values", kinds},
		{"Chart values", values},
		{"Objects of the manifests", objects},
		{"Alerts and recording rules", rules},
	}, nil
}

// customKinds lists the CRDs in the folder.
func customKinds(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, file := range files {
		var crd apiextensions.CustomResourceDefinition
		if err := readYAML(file, &crd); err != nil {
			return nil, err
		}
		names := crd.Spec.Names
		lines = append(lines, fmt.Sprintf("%s %s singular=%s shortNames=%v categories=%v scope=%s", crd.Name, names.Kind, names.Singular, names.ShortNames, names.Categories, crd.Spec.Scope))
		for _, version := range crd.Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				lines = append(lines, fmt.Sprintf("%s %s column %s %s", crd.Name, version.Name, column.Name, column.JSONPath))
			}
			lines = append(lines, enumerated(crd.Name+" "+version.Name+" ", *version.Schema.OpenAPIV3Schema)...)
		}
	}
	return lines, nil
}

// enumerated lists the closed sets of values in the schema and below it.
func enumerated(path string, schema apiextensions.JSONSchemaProps) []string {
	var lines []string
	if len(schema.Enum) > 0 {
		var values []string
		for _, value := range schema.Enum {
			values = append(values, string(value.Raw))
		}
		lines = append(lines, path+" "+strings.Join(values, " "))
	}
	for name, property := range schema.Properties {
		lines = append(lines, enumerated(path+"."+name, property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		lines = append(lines, enumerated(path+"[]", *schema.Items.Schema)...)
	}
	return lines
}

// chartValues lists the chart's values: those with a default, and those that only the schema names.
func chartValues(chart string) ([]string, error) {
	var values map[string]any
	if err := readYAML(filepath.Join(chart, "values.yaml"), &values); err != nil {
		return nil, err
	}
	var schema map[string]any
	if err := readYAML(filepath.Join(chart, "values.schema.json"), &schema); err != nil {
		return nil, err
	}
	defaults := map[string]string{}
	if err := flatten("", values, defaults); err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	schemaPaths("", schema, paths)
	var lines []string
	for path, value := range defaults {
		lines = append(lines, path+" = "+value)
	}
	for path := range paths {
		if _, has := defaults[path]; !has {
			lines = append(lines, path)
		}
	}
	return lines, nil
}

// flatten notes the leaves of a value by their paths.
func flatten(path string, value any, into map[string]string) error {
	if fields, ok := value.(map[string]any); ok && len(fields) > 0 {
		for name, field := range fields {
			if err := flatten(strings.TrimPrefix(path+"."+name, "."), field, into); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := json.Marshal(value)
	into[path] = string(text)
	return err
}

// schemaPaths notes the leaves of a JSON schema.
func schemaPaths(path string, schema map[string]any, into map[string]bool) {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 {
		into[path] = true
		return
	}
	for name, property := range properties {
		if inner, ok := property.(map[string]any); ok {
			schemaPaths(strings.TrimPrefix(path+"."+name, "."), inner, into)
		}
	}
}

// manifestObjects lists the objects of the plain manifests, by kind and name; examples are left out.
func manifestObjects(deployments string) ([]string, error) {
	var lines []string
	err := filepath.WalkDir(deployments, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{"helm", "images", "examples"}, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml":
			return nil
		}
		found, err := objectsOf(path)
		lines = append(lines, found...)
		return err
	})
	return lines, err
}

// objectsOf lists the objects in a file of YAML documents.
func objectsOf(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lines []string
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var object struct {
			Kind     string                                `json:"kind"`
			Metadata struct{ Name string }                 `json:"metadata"`
			Spec     struct{ ExtendedResourceName string } `json:"spec"`
			Data     map[string]string                     `json:"data"`
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if object.Kind == "" {
			continue
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{
			object.Kind, object.Metadata.Name, object.Spec.ExtendedResourceName, strings.Join(slices.Sorted(maps.Keys(object.Data)), " "),
		}, " ")))
	}
	return lines, nil
}

// ruleNames lists the alerts with their severities, and the series of recording rules.
func ruleNames(file string) ([]string, error) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert  string            `json:"alert"`
				Record string            `json:"record"`
				Labels map[string]string `json:"labels"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := readYAML(file, &rules); err != nil {
		return nil, err
	}
	var lines []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				lines = append(lines, rule.Record)
				continue
			}
			lines = append(lines, rule.Alert+" severity="+rule.Labels["severity"])
		}
	}
	return lines, nil
}

func readYAML(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}
