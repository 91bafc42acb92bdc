package lab

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// The lab's own programs: the first process of a machine, the pause program of pods, and the scheduler.
const (
	guestPackage     = "./e2e/env/lab/cmd/guest"
	pausePackage     = "./deployments/images/pause"
	schedulerPackage = "./cmd/tessera-scheduler"
)

// buildPrograms builds the missing programs of the cluster into the cache: those of the control plane, and the container runtimes of the nodes.
func buildPrograms(ctx context.Context, config Config) (binaries.Folders, error) {
	builder, err := binaries.NewBuilder(config.Cache, config.Progress)
	if err != nil {
		return nil, err
	}
	families := []string{binaries.Etcd, binaries.Kubernetes, binaries.Containerd}
	for _, node := range config.Nodes {
		if node.Runtime != "" {
			families = append(families, node.Runtime)
		}
	}
	return builder.Build(ctx, families...)
}

// ProductFolder returns the folder of the product's programs in the cache. It exists after Start.
func ProductFolder(cache string) string { return filepath.Join(cache, "bin", recipe.Product) }

// buildOwn builds the lab's own programs and collects the images of every node.
func (l *Lab) buildOwn(ctx context.Context, p *preparation) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	product := ProductFolder(p.config.Cache)
	p.folders[recipe.Product] = product
	guest, pause := filepath.Join(product, "guest"), filepath.Join(product, "pause")
	programs := map[string]string{guest: guestPackage, pause: pausePackage}
	if !p.config.StockScheduler {
		l.say("building the scheduler from the tree")
		programs[filepath.Join(product, "tessera-scheduler")] = schedulerPackage
	}
	for out, pkg := range programs {
		if err := binaries.Compile(ctx, source, pkg, out); err != nil {
			return err
		}
	}
	if err := copyFile(guest, l.guest(), 0o755); err != nil {
		return fmt.Errorf("copy the guest program: %w", err)
	}
	p.images = []string{"pause.tar"}
	err = oci.WriteArchive(filepath.Join(l.images(), p.images[0]), oci.Image{
		Name:         recipe.PauseImage,
		Architecture: runtime.GOARCH,
		Layers:       [][]oci.File{{{Path: "/pause", Source: pause}}},
		Entrypoint:   []string{"/pause"},
	})
	if err != nil {
		return err
	}
	for i, archive := range p.config.Images {
		name := fmt.Sprintf("%02d-%s", i, filepath.Base(archive))
		if err := copyFile(archive, filepath.Join(l.images(), name), 0o644); err != nil {
			return fmt.Errorf("take along image %s: %w", archive, err)
		}
		p.images = append(p.images, name)
	}
	return nil
}

func (l *Lab) images() string { return filepath.Join(l.folder, "images") }

// binaryMounts mounts the programs of all families into a machine.
func binaryMounts(folders binaries.Folders) []machine.Mount {
	var mounts []machine.Mount
	for _, family := range slices.Sorted(maps.Keys(folders)) {
		mounts = append(mounts, machine.Mount{Source: folders[family], Target: filepath.Join(recipe.Binaries, family)})
	}
	return mounts
}

// nodePrograms mounts the programs that a node runs. They are copied to the disk of a virtual machine.
func nodePrograms(folders binaries.Folders) []machine.Mount {
	mounts := []machine.Mount{{Source: folders[binaries.Containerd], Target: filepath.Join(recipe.Binaries, binaries.Containerd)}}
	for _, program := range []string{recipe.Kubelet, recipe.Proxy} {
		path := filepath.Join(binaries.Kubernetes, program)
		mounts = append(mounts, machine.Mount{Source: filepath.Join(folders[binaries.Kubernetes], program), Target: filepath.Join(recipe.Binaries, path)})
	}
	return mounts
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close() //nolint:errcheck // the copy has failed already
		return err
	}
	return target.Close()
}
