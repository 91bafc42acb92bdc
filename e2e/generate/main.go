// Command generate writes what in deployments/ follows from something else: a DeviceClass for every MIG
// profile of the catalogue, the admission policy for parameters, and the list of the examples.
//
//go:generate go run . ../../deployments
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/e2e/expect"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DEPLOYMENTS")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(deployments string) error {
	models, err := gputest.Models()
	if err != nil {
		return err
	}
	classes, err := profileClasses(models)
	if err != nil {
		return err
	}
	examples, err := expect.Load(os.DirFS(filepath.Join(deployments, "examples")))
	if err != nil {
		return err
	}
	files := map[string]string{
		"admission-params.yaml":       renderPolicy(params.Kinds()),
		"deviceclasses-profiles.yaml": renderClasses(classes),
		"examples/README.md":          renderExamples(examples),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(deployments, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write generated file: %w", err)
		}
	}
	return nil
}
