package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// WithComponents returns the kustomize build of deployments/ with the scheduler component and the given components,
// which are named by their folders in deployments/. The roots of the node configuration are those of the fake GPUs. The
// objects are in kustomize's order.
func WithComponents(ctx context.Context, components ...string) ([]*unstructured.Unstructured, error) {
	list, err := Kustomized(ctx, append([]string{schedulerComponent}, components...)...)
	return withoutSchedulerPods(list), err
}

// Kustomized returns the kustomize build of deployments/ with exactly these components.
func Kustomized(ctx context.Context, components ...string) ([]*unstructured.Unstructured, error) {
	text, err := kustomize(ctx, components)
	if err != nil {
		return nil, fmt.Errorf("read the manifests with %v: %w", components, err)
	}
	list, err := Decode(text)
	if err != nil {
		return nil, err
	}
	return list, pointAtFakeGPUs(list)
}

// kustomize writes a kustomization outside the repository, as a user does, and builds it with kubectl.
func kustomize(ctx context.Context, components []string) ([]byte, error) {
	folder, err := source("deployments")
	if err != nil {
		return nil, err
	}
	kubectl, err := kubectl(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kustomize")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	base, err := filepath.Rel(dir, folder)
	if err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(components))
	for _, component := range components {
		paths = append(paths, path.Join(base, component))
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []string{base}, "components": paths,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", dir)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize: %w: %s", err, problems.String())
	}
	return out, nil
}

// kubectl returns the path of the lab's kubectl. It is built if missing.
func kubectl(ctx context.Context) (string, error) {
	builder, err := binaries.NewBuilder("", os.Stderr)
	if err != nil {
		return "", err
	}
	folder, err := builder.BuildOne(ctx, binaries.Kubernetes)
	return filepath.Join(folder, "kubectl"), err
}
