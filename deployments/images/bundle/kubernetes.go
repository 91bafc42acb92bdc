package bundle

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/util/version"
)

// KubernetesLabel is the label with the minor version of Kubernetes from which the scheduler of an image is built, such as 1.37.
const KubernetesLabel = "tessera.dev/kubernetes"

// errNoKubernetes is returned for a program that is not built from Kubernetes.
var errNoKubernetes = errors.New("the program does not contain the module k8s.io/kubernetes")

// kubernetesMinor returns the minor version of Kubernetes from which a program is built, as the Go toolchain recorded it in the program.
func kubernetesMinor(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	minor, err := minorOf(info)
	if err != nil {
		return "", fmt.Errorf("read the version of Kubernetes from %s: %w", program, err)
	}
	return minor, nil
}

// minorOf returns the minor version of the module k8s.io/kubernetes, also if it is replaced.
func minorOf(info *debug.BuildInfo) (string, error) {
	for _, module := range info.Deps {
		if module.Path != "k8s.io/kubernetes" {
			continue
		}
		parsed, err := version.ParseSemantic(module.Version)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d.%d", parsed.Major(), parsed.Minor()), nil
	}
	return "", errNoKubernetes
}
