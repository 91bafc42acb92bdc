// Package bundle builds the images of the product as archives for `ctr images import`.
package bundle

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/deployments/images/userland"
)

// The names of the images on a node.
const (
	NodeImage      = "localhost/tessera/node:dev"      // the agent, as deployments/daemonset.yaml names it
	SchedulerImage = "localhost/tessera/scheduler:dev" // the scheduler, as deployments/scheduler names it
	InstallerImage = "localhost/tessera/installer:dev" // the installer, as the chart names it
	UserlandImage  = "localhost/tessera/userland:dev"  // the C library and a shell; of tests
)

// Base is the base layer of images with dynamically linked programs: the C library and a shell.
type Base struct {
	Layers [][]oci.File
	Labels map[string]string
}

// NewBase reads the base from the host.
func NewBase(ctx context.Context) (Base, error) {
	glibc, err := userland.HostGlibc(ctx)
	if err != nil {
		return Base{}, err
	}
	shell, err := userland.Busybox(ctx)
	if err != nil {
		return Base{}, err
	}
	return Base{Layers: [][]oci.File{glibc.Files, shell}, Labels: map[string]string{userland.LibcLabel: glibc.Version}}, nil
}

// Image returns a recipe of an image of that name: the base and one layer of the given files.
func (b Base) Image(name string, files ...oci.File) oci.Image {
	image := oci.Image{Name: name, Architecture: runtime.GOARCH, Layers: slices.Clone(b.Layers), Labels: maps.Clone(b.Labels), Env: []string{searchPath}}
	if len(files) > 0 {
		image.Layers = append(image.Layers, files)
	}
	return image
}

const searchPath = "PATH=/usr/local/bin:/usr/bin"

// Static returns a recipe of an image of that name with a shell and without a C library.
func Static(ctx context.Context, name string) (oci.Image, error) {
	shell, err := userland.Busybox(ctx)
	return oci.Image{Name: name, Architecture: runtime.GOARCH, Layers: [][]oci.File{shell}, Env: []string{searchPath}}, err
}

// Programs are the host's paths of what goes into the product's images.
type Programs struct {
	Node      string // tessera-node, linked against the C library
	Hook      string // tessera-hook, static
	Scheduler string // tessera-scheduler, static; without it there is no image of the scheduler
	Installer string // tessera-installer, static; without it there is no image of the installer
}

// CompleteAll compiles what has no path yet from the repository at source into a folder.
func (p Programs) CompleteAll(ctx context.Context, source, folder string) (Programs, error) {
	if p.Scheduler == "" {
		p.Scheduler = filepath.Join(folder, "tessera-scheduler")
		if err := compile(ctx, source, "./cmd/tessera-scheduler", p.Scheduler, "CGO_ENABLED=0"); err != nil {
			return Programs{}, err
		}
	}
	if p.Installer == "" {
		p.Installer = filepath.Join(folder, "tessera-installer")
		if err := compile(ctx, source, "./cmd/tessera-installer", p.Installer, "CGO_ENABLED=0"); err != nil {
			return Programs{}, err
		}
	}
	return p.Complete(ctx, source, folder)
}

// Complete compiles what has no path yet of the agent's programs.
func (p Programs) Complete(ctx context.Context, source, folder string) (Programs, error) {
	if p.Node == "" {
		p.Node = filepath.Join(folder, "tessera-node")
		if err := compile(ctx, source, "./cmd/tessera-node", p.Node, "CGO_ENABLED=1"); err != nil { // NVML is reached by dlopen
			return Programs{}, err
		}
	}
	if p.Hook == "" {
		p.Hook = filepath.Join(folder, "tessera-hook")
		if err := compile(ctx, source, "./cmd/tessera-hook", p.Hook, "CGO_ENABLED=0"); err != nil {
			return Programs{}, err
		}
	}
	return p, nil
}

func compile(ctx context.Context, source, pkg, out, cgo string) error {
	// The tag leaves gRPC's tracing pages out, and with them a third of the agent's size in memory.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-o", out, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), cgo)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// Node returns a recipe of the agent's image.
func (b Base) Node(programs Programs) oci.Image {
	agent := b.Image(NodeImage,
		oci.File{Path: "/usr/bin/tessera-node", Source: programs.Node},
		oci.File{Path: "/usr/bin/tessera-hook", Source: programs.Hook},
	)
	agent.Entrypoint = []string{"/usr/bin/tessera-node"}
	return agent
}

// Scheduler returns a recipe of the scheduler's image, which holds nothing else. Its label KubernetesLabel has the minor version of Kubernetes from which
// the program is built.
func Scheduler(programs Programs) (oci.Image, error) {
	minor, err := kubernetesMinor(programs.Scheduler)
	if err != nil {
		return oci.Image{}, err
	}
	return oci.Image{
		Name: SchedulerImage, Architecture: runtime.GOARCH, Entrypoint: []string{"/usr/bin/tessera-scheduler"},
		Layers: [][]oci.File{{{Path: "/usr/bin/tessera-scheduler", Source: programs.Scheduler}}},
		Labels: map[string]string{KubernetesLabel: minor},
	}, nil
}

// Installer returns a recipe of the installer's image, which holds nothing else.
func Installer(programs Programs) oci.Image {
	return oci.Image{
		Name: InstallerImage, Architecture: runtime.GOARCH, Entrypoint: []string{"/usr/bin/tessera-installer"},
		Layers: [][]oci.File{{{Path: "/usr/bin/tessera-installer", Source: programs.Installer}}},
	}
}

// Write builds all images that there are programs for and writes one archive each into a folder; it returns their paths, the agent's first.
func Write(ctx context.Context, folder string, programs Programs) ([]string, error) {
	base, err := NewBase(ctx)
	if err != nil {
		return nil, err
	}
	type entry struct {
		file  string
		image oci.Image
	}
	entries := []entry{{"node.tar", base.Node(programs)}}
	if programs.Scheduler != "" {
		scheduler, err := Scheduler(programs)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{"scheduler.tar", scheduler})
	}
	if programs.Installer != "" {
		entries = append(entries, entry{"installer.tar", Installer(programs)})
	}
	var archives []string
	for _, entry := range entries {
		archive := filepath.Join(folder, entry.file)
		if err := oci.WriteArchive(archive, entry.image); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}
