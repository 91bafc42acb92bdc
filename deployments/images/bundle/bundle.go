// Package bundle builds the images of the product as archives for `ctr images import`.
package bundle

import (
	"context"
	"maps"
	"path"
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
	glibc, err := userland.Glibc(ctx, runtime.GOARCH)
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
	Target    Target // of all programs
	Node      string // tessera-node, linked against the C library
	Hook      string // tessera-hook, static
	Scheduler string // tessera-scheduler, static; without it there is no image of the scheduler
	Installer string // tessera-installer, static; without it there is no image of the installer
}

// CompleteAll compiles what has no path yet from the repository at source into a folder.
func (p Programs) CompleteAll(ctx context.Context, source, folder string) (Programs, error) {
	if p.Scheduler == "" {
		p.Scheduler = filepath.Join(folder, "tessera-scheduler")
		if err := p.Target.Compile(ctx, source, "./cmd/tessera-scheduler", p.Scheduler); err != nil {
			return Programs{}, err
		}
	}
	if p.Installer == "" {
		p.Installer = filepath.Join(folder, "tessera-installer")
		if err := p.Target.Compile(ctx, source, "./cmd/tessera-installer", p.Installer); err != nil {
			return Programs{}, err
		}
	}
	return p.Complete(ctx, source, folder)
}

// Complete compiles what has no path yet of the agent's programs.
func (p Programs) Complete(ctx context.Context, source, folder string) (Programs, error) {
	if p.Node == "" {
		p.Node = filepath.Join(folder, "tessera-node")
		if err := p.Target.compileWithC(ctx, source, "./cmd/tessera-node", p.Node); err != nil { // NVML is reached by dlopen
			return Programs{}, err
		}
	}
	if p.Hook == "" {
		p.Hook = filepath.Join(folder, "tessera-hook")
		if err := p.Target.Compile(ctx, source, "./cmd/tessera-hook", p.Hook); err != nil {
			return Programs{}, err
		}
	}
	return p, nil
}

// Node returns a recipe of the agent's image: the C library, without a shell.
func Node(ctx context.Context, programs Programs) (oci.Image, error) {
	glibc, err := userland.Glibc(ctx, programs.Target.architecture())
	if err != nil {
		return oci.Image{}, err
	}
	return programs.image(oci.Image{
		Name: NodeImage, Entrypoint: []string{"/usr/bin/tessera-node"}, Env: []string{searchPath},
		Layers: [][]oci.File{append(glibc.Files, userland.Accounts()...), {
			{Path: "/usr/bin/tessera-node", Source: programs.Node},
			{Path: "/usr/bin/tessera-hook", Source: programs.Hook},
		}},
		Labels: map[string]string{userland.LibcLabel: glibc.Version},
	}, "Node agent of Tessera: publishes GPUs and prepares claims"), nil
}

// Scheduler returns a recipe of the scheduler's image, which holds nothing else. Its label KubernetesLabel has the minor version of Kubernetes from which
// the program is built.
func Scheduler(programs Programs) (oci.Image, error) {
	minor, err := kubernetesMinor(programs.Scheduler)
	if err != nil {
		return oci.Image{}, err
	}
	return programs.image(oci.Image{
		Name: SchedulerImage, Entrypoint: []string{"/usr/bin/tessera-scheduler"},
		Layers: [][]oci.File{{{Path: "/usr/bin/tessera-scheduler", Source: programs.Scheduler}}},
		Labels: map[string]string{KubernetesLabel: minor},
	}, "kube-scheduler with the plugin of Tessera"), nil
}

// Installer returns a recipe of the installer's image, which holds nothing else.
func Installer(programs Programs) oci.Image {
	return programs.image(oci.Image{
		Name: InstallerImage, Entrypoint: []string{"/usr/bin/tessera-installer"},
		Layers: [][]oci.File{{{Path: "/usr/bin/tessera-installer", Source: programs.Installer}}},
		Labels: map[string]string{},
	}, "Installer of Tessera: drivers, node agents and other operands")
}

// image adds the architecture and the labels that registries show. The title is the last part of the name.
func (p Programs) image(image oci.Image, description string) oci.Image {
	image.Architecture = p.Target.architecture()
	labels := map[string]string{
		"title": "tessera-" + path.Base(repository(image.Name)), "description": description, "source": Source, "licenses": "Apache-2.0",
		"version": p.Target.Version, "revision": p.Target.Revision,
	}
	for name, value := range labels {
		if value != "" {
			image.Labels[oci.LabelPrefix+name] = value
		}
	}
	return image
}

// Source is the repository of the product.
const Source = "https://github.com/tessera-gpu/tessera"

// Images returns the recipes of all images of the product, the agent's first.
func Images(ctx context.Context, programs Programs) ([]oci.Image, error) {
	node, err := Node(ctx, programs)
	if err != nil {
		return nil, err
	}
	scheduler, err := Scheduler(programs)
	if err != nil {
		return nil, err
	}
	return []oci.Image{node, scheduler, Installer(programs)}, nil
}

// Write builds all images that there are programs for and writes one archive each into a folder; it returns their paths, the agent's first.
func Write(ctx context.Context, folder string, programs Programs) ([]string, error) {
	node, err := Node(ctx, programs)
	if err != nil {
		return nil, err
	}
	type entry struct {
		file  string
		image oci.Image
	}
	entries := []entry{{"node.tar", node}}
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
