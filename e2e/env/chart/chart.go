// Package chart runs helm on the product's chart, as an administrator does.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Release is the release name of the chart.
const Release = "tessera"

// Helm is the helm program and the chart.
type Helm struct {
	// Program is the path of helm, Folder that of the chart.
	Program, Folder string
	// Kubeconfig is the path of a kubeconfig. Rendering does not need it.
	Kubeconfig string
	// Home is the folder for helm's own files. If empty, a temporary folder is used.
	Home string
}

// New builds helm, if it is missing in the cache, and finds the chart. A build takes minutes and reports progress on
// stderr.
func New(ctx context.Context) (Helm, error) {
	source, err := binaries.Source()
	if err != nil {
		return Helm{}, err
	}
	builder, err := binaries.NewBuilder("", os.Stderr)
	if err != nil {
		return Helm{}, err
	}
	folder, err := builder.BuildOne(ctx, binaries.Helm)
	if err != nil {
		return Helm{}, err
	}
	return Helm{Program: filepath.Join(folder, "helm"), Folder: filepath.Join(source, "deployments", "helm", "tessera")}, nil
}

// Run runs helm and returns its standard output. The error includes the standard error.
func (h Helm) Run(ctx context.Context, args ...string) (string, error) {
	home := h.Home
	if home == "" {
		var err error
		if home, err = os.MkdirTemp("", "helm-"); err != nil {
			return "", fmt.Errorf("make a folder for helm: %w", err)
		}
		defer os.RemoveAll(home) //nolint:errcheck // a leftover is harmless
	}
	cmd := exec.CommandContext(ctx, h.Program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+h.Kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Template returns the rendered objects of the chart with these flags, including hooks, in helm's order.
func (h Helm) Template(ctx context.Context, namespace string, flags ...string) ([]*unstructured.Unstructured, error) {
	args := append([]string{"template", Release, h.Folder, "--namespace", namespace, "--kube-version", "v1.37.0"}, flags...)
	text, err := h.Run(ctx, args...)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

func decode(text string) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what helm rendered: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
