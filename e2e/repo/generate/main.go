// Command generate writes the generated files of deployments/ and docs/: a DeviceClass for every MIG profile of the catalogue, the admission policy
// for parameters, the component with NVIDIA's driver name, the chart's copies of the manifests and its README, the dashboards, the lists of examples, and docs/reference.md,
// docs/installer-api.md, docs/health-xids.md, docs/support.md and the pictures of the CLI.
//
//go:generate go run . ../../..
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate REPOSITORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(repository string) error {
	for _, step := range []func(repository string) error{writeDocs, writeEnforcement, writeScreens} {
		if err := step(repository); err != nil {
			return err
		}
	}
	deployments := filepath.Join(repository, "deployments")
	for _, step := range []func(deployments string) error{writeManifests, writeComponent, writeMonitoring, writeChartReadme, writeChart} { // in this order
		if err := step(deployments); err != nil {
			return err
		}
	}
	return nil
}

// writeDocs writes the generated pages of docs/.
func writeDocs(repository string) error {
	reference, err := renderReference(repository)
	if err != nil {
		return err
	}
	installer, err := renderInstaller()
	if err != nil {
		return err
	}
	support, err := renderSupport(repository)
	if err != nil {
		return err
	}
	return write(filepath.Join(repository, "docs"), map[string]string{
		"reference.md": reference, "installer-api.md": installer, "health-xids.md": renderXIDs(), "support.md": support,
	})
}

// writeManifests writes the DeviceClasses of profiles, the policy for parameters and the lists of examples.
func writeManifests(deployments string) error {
	models, err := catalog.Models()
	if err != nil {
		return err
	}
	classes, err := profileClasses(models)
	if err != nil {
		return err
	}
	files := map[string]string{
		policyFile:                    renderPolicy(params.Kinds()),
		"deviceclasses-profiles.yaml": renderClasses(classes),
	}
	for folder, introduction := range map[string]string{"examples": ownExamples, "nvidia/examples": nvidiaExamples} {
		examples, err := expect.Load(os.DirFS(filepath.Join(deployments, folder)))
		if err != nil {
			return err
		}
		files[folder+"/README.md"] = renderExamples(introduction, examples)
	}
	return write(deployments, files)
}

// writeComponent writes the component with the name of NVIDIA's driver.
func writeComponent(deployments string) error {
	scheduler := filepath.Join(deployments, "scheduler")
	component, err := renderComponent(deployments, filepath.Join(scheduler, "common"), filepath.Join(scheduler, "additional"))
	if err != nil {
		return err
	}
	return write(deployments, map[string]string{"nvidia/kustomization.yaml": component})
}

// writeChartReadme writes the chart's README.
func writeChartReadme(deployments string) error {
	readme, err := renderChartReadme(deployments)
	if err != nil {
		return err
	}
	return write(deployments, map[string]string{chartReadme: readme})
}

// replaceFolder replaces a folder by one with these files.
func replaceFolder(folder string, files map[string]string) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("write generated files: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write generated files: %w", err)
	}
	return write(folder, files)
}

func write(folder string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}
