// Package binaries builds the programs of a cluster from their pinned modules into a cache, once per version.
package binaries

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Family is the set of programs that are built from one module of e2e/env/lab/modules.
type Family struct {
	// Name is the folder of the programs inside a machine.
	Name string
	// Folder is the folder of the module. Name if empty.
	Folder string
	// Module is the requirement that determines the version of the family.
	Module string
	// Programs are import paths of main packages, in build order.
	Programs []Program
	// Stamp returns the -X variables for the version, if the programs report one.
	Stamp func(version string) map[string]string
}

// Program is one main package.
type Program struct {
	Name    string
	Package string
}

var versionSuffix = regexp.MustCompile(`^v[0-9]+$`)

// executable returns the name that `go build` gives the program: the last element of the import path that is not a major version.
func (p Program) executable() string {
	dir, name := path.Split(p.Package)
	if versionSuffix.MatchString(name) {
		name = path.Base(dir)
	}
	return name
}

// Names of the families.
const (
	Etcd         = "etcd"
	Containerd   = "containerd"
	Containerd17 = "containerd17"
	Helm         = "helm"
	Kubernetes   = "kubernetes"
)

// Families lists all programs of a lab that are not taken from the host, fastest build first, and helm, which tests
// use. The environment selects the version of Kubernetes.
func Families() ([]Family, error) {
	version, err := KubernetesVersion()
	if err != nil {
		return nil, err
	}
	return append(parts(), kubernetes(version)), nil
}

// parts lists the families with one version.
func parts() []Family {
	return []Family{
		{
			Name: Etcd, Module: "go.etcd.io/etcd/server/v3",
			Programs: []Program{{"etcd", "go.etcd.io/etcd/server/v3"}},
		},
		{
			Name: Containerd, Module: "github.com/containerd/containerd/v2",
			Programs: []Program{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"},
			},
			Stamp: func(version string) map[string]string {
				return map[string]string{"github.com/containerd/containerd/v2/version.Version": version}
			},
		},
		{
			Name: Containerd17, Module: "github.com/containerd/containerd", // reads CDI specs only if configured
			Programs: []Program{
				{"containerd", "github.com/containerd/containerd/cmd/containerd"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"},
				{"ctr", "github.com/containerd/containerd/cmd/ctr"},
			},
			Stamp: func(version string) map[string]string {
				return map[string]string{"github.com/containerd/containerd/version.Version": version}
			},
		},
		{
			Name: Helm, Module: "helm.sh/helm/v4",
			Programs: []Program{{"helm", "helm.sh/helm/v4/cmd/helm"}},
			Stamp: func(version string) map[string]string {
				return map[string]string{"helm.sh/helm/v4/internal/version.version": version}
			},
		},
	}
}

// kubernetes returns the programs of a minor version of Kubernetes.
func kubernetes(version string) Family {
	return Family{
		Name: Kubernetes, Folder: kubernetesFolder(version), Module: "k8s.io/kubernetes",
		Programs: []Program{
			{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
			{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
			{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
			{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
			{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
			{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
		},
		Stamp: kubernetesStamp,
	}
}

// kubernetesStamp sets the version that clients and servers exchange: without it the version skew checks fail.
func kubernetesStamp(version string) map[string]string {
	const variables = "k8s.io/component-base/version."
	numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return map[string]string{
		variables + "gitVersion": version,
		variables + "gitMajor":   numbers[0],
		variables + "gitMinor":   numbers[1],
	}
}

// pinned is a family at its pinned version.
type pinned struct {
	Family
	folder  string // of the module
	version string
	key     string // folder in the cache; changes with every input of the build
}

// pin reads the version from the module in modules and computes the key.
func (f Family) pin(ctx context.Context, modules string) (pinned, error) {
	name := cmp.Or(f.Folder, f.Name)
	p := pinned{Family: f, folder: filepath.Join(modules, name)}
	version, err := goCommand(ctx, p.folder, "list", "-m", "-f", "{{.Version}}", f.Module)
	if err != nil {
		return pinned{}, fmt.Errorf("find the version of %s: %w", f.Module, err)
	}
	p.version = version
	toolchain, err := goCommand(ctx, p.folder, "env", "GOVERSION")
	if err != nil {
		return pinned{}, fmt.Errorf("find the version of Go: %w", err)
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(p.folder, name))
		if err != nil {
			return pinned{}, fmt.Errorf("pin %s: %w", f.Name, err)
		}
		sum.Write(text)
	}
	fmt.Fprintln(sum, toolchain, runtime.GOARCH, p.flags())
	p.key = fmt.Sprintf("%s-%s-%s", name, version, hex.EncodeToString(sum.Sum(nil))[:8])
	return p, nil
}

// flags returns the flags of `go build`, the same for every program of the family.
func (p pinned) flags() []string {
	ldflags := "-s -w"
	if p.Stamp != nil {
		stamp := p.Stamp(p.version)
		for _, variable := range slices.Sorted(maps.Keys(stamp)) {
			ldflags += fmt.Sprintf(" -X %s=%s", variable, stamp[variable])
		}
	}
	return []string{"-trimpath", "-mod=readonly", "-ldflags=" + ldflags}
}

// goCommand runs the go command in a folder and returns its output.
func goCommand(ctx context.Context, folder string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, tail(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// tail returns the end of the compiler's output.
func tail(text string) string {
	const lines = 20
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
