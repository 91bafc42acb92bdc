// Command crds generates files from the kinds of api/v1alpha1: their deep copies and their CustomResourceDefinitions. It runs controller-gen,
// at the version that e2e/repo/tools/crds pins, and then finishes its CRDs for the chart and the installer; see finish. It imports nothing of
// api/v1alpha1, which may not compile without these files.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// header is the first line of every generated CRD.
const header = "# Generated from api/v1alpha1 by e2e/repo/generate/crds; do not edit.\n"

// folders are where each CRD is written: the chart installs one copy, the programs embed the other. They are equal byte for byte.
var folders = []string{"deployments/helm/tessera/crds", "installer/crds"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crds REPOSITORY")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, repository string) error {
	repository, err := filepath.Abs(repository)
	if err != nil {
		return err
	}
	raw, err := os.MkdirTemp("", "crds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(raw)
	kinds := filepath.Join(repository, "api", "v1alpha1")
	generate := exec.CommandContext(ctx, "go", "-C", filepath.Join(repository, "e2e", "repo", "tools", "crds"), "run", "sigs.k8s.io/controller-tools/cmd/controller-gen",
		"object", "crd:crdVersions=v1", "paths="+kinds, "output:object:dir="+kinds, "output:crd:dir="+raw)
	generate.Stderr = os.Stderr
	if err := generate.Run(); err != nil {
		return fmt.Errorf("run controller-gen: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(raw, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text, err = finish(text)
		if err != nil {
			return fmt.Errorf("finish %s: %w", filepath.Base(file), err)
		}
		for _, folder := range folders {
			target := filepath.Join(repository, filepath.FromSlash(folder), filepath.Base(file))
			if err := os.WriteFile(target, append([]byte(header), text...), 0o644); err != nil {
				return fmt.Errorf("write generated file: %w", err)
			}
		}
	}
	return nil
}
