package binaries

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// KubernetesVariable is the environment variable with the minor version of Kubernetes that is built and started: one of KubernetesVersions.
const KubernetesVariable = "KUBERNETES"

// Minor versions of Kubernetes that a lab can start.
const (
	Kubernetes137 = "1.37"
	Kubernetes136 = "1.36"
)

// KubernetesVersions returns the values of KubernetesVariable. The first is the default.
func KubernetesVersions() []string { return []string{Kubernetes137, Kubernetes136} }

// KubernetesVersion returns the minor version that the environment selects. A version without a module is an error.
func KubernetesVersion() (string, error) {
	selected, versions := os.Getenv(KubernetesVariable), KubernetesVersions()
	switch {
	case selected == "":
		return versions[0], nil
	case !slices.Contains(versions, selected):
		return "", fmt.Errorf("%s=%s: there is no such version in the lab; set one of %s", KubernetesVariable, selected, strings.Join(versions, ", "))
	default:
		return selected, nil
	}
}

// kubernetesFolder returns the folder of the module of a minor version. The default version has the name of the family.
func kubernetesFolder(version string) string {
	if version == KubernetesVersions()[0] {
		return Kubernetes
	}
	return Kubernetes + strings.ReplaceAll(version, ".", "")
}
