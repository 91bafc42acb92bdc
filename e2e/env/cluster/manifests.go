package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// schedulerComponent is the folder in deployments/ that all ways to run the scheduler share.
const schedulerComponent = "scheduler/common"

// Manifests returns the objects of deployments/ for a lab with this minor version of Kubernetes, in their order: with those of the scheduler component
// where the lab runs tessera-scheduler. The roots of the node configuration are those of the fake GPUs. The scheduler's pods are omitted: a lab's
// scheduler runs in its control plane, with the same account.
func Manifests(kubernetes string) ([]*unstructured.Unstructured, error) {
	parts := []string{""}
	if lab.RunsOwnScheduler(kubernetes) {
		parts = append(parts, schedulerComponent)
	}
	var all []*unstructured.Unstructured
	for _, part := range parts {
		folder, err := source("deployments", part)
		if err != nil {
			return nil, err
		}
		list, err := Listed(folder)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	all = withoutSchedulerPods(all)
	return all, pointAtFakeGPUs(all)
}

// withoutSchedulerPods omits the objects that run the scheduler in pods.
func withoutSchedulerPods(list []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(list, func(object *unstructured.Unstructured) bool {
		return object.GetName() == SchedulerName && (object.GetKind() == "Deployment" || object.GetKind() == "PodDisruptionBudget")
	})
}

// Listed returns the unmodified objects of the folder's kustomization, in its order.
func Listed(folder string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	var list []*unstructured.Unstructured
	for _, file := range kustomization.Resources {
		objects, err := readManifest(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		list = append(list, objects...)
	}
	return list, nil
}

// ReadManifest returns the unmodified objects of a file in deployments/.
func ReadManifest(path ...string) ([]*unstructured.Unstructured, error) {
	file, err := source(append([]string{"deployments"}, path...)...)
	if err != nil {
		return nil, err
	}
	return readManifest(file)
}

func readManifest(file string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	objects, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return objects, nil
}

// configName and configKey locate the node configuration.
const (
	configName = "tessera-node-config"
	configKey  = "node.yaml"
)

func pointAtFakeGPUs(list []*unstructured.Unstructured) error {
	for _, object := range list {
		if object.GetKind() != "ConfigMap" || object.GetName() != configName {
			continue
		}
		text, _, err := unstructured.NestedString(object.Object, "data", configKey)
		if err != nil {
			return fmt.Errorf("read the node configuration: %w", err)
		}
		if text, err = withRoots(text); err != nil {
			return fmt.Errorf("read the node configuration: %w", err)
		}
		return unstructured.SetNestedField(object.Object, text, "data", configKey)
	}
	return fmt.Errorf("no ConfigMap %s in deployments/", configName)
}

// withRoots adds the roots of the fake host tree, as the agent sees them below the host's root, to the configuration.
func withRoots(text string) (string, error) {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return "", err
	}
	roots, ok := config["roots"].(map[string]any)
	if !ok {
		return "", errors.New("roots.host is not set")
	}
	seen := filepath.Join(fmt.Sprint(roots["host"]), lab.GPUFolder)
	roots["driver"] = fakegpu.DriverRoot(seen)
	roots["dev"] = fakegpu.DevRoot(seen)
	roots["proc"] = fakegpu.ProcRoot(seen)
	roots["sys"] = fakegpu.SysRoot(seen)
	out, err := yaml.Marshal(config)
	return string(out), err
}
