package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// Destination is where the product's images go and from where a cluster installs them.
type Destination struct {
	// Registry is a registry with a path, such as registry.example.com/tessera; Tag is the tag of every image.
	Registry, Tag string
	// Overlay is the folder that gets what installs the images that were pushed: values of the chart, and a kustomization
	// of Manifests.
	Overlay, Manifests string
}

// ValuesFile is the file in the overlay with values of the chart.
const ValuesFile = "values.yaml"

// Push builds the product's images, pushes them and writes the overlay. It returns the images by digest.
func Push(ctx context.Context, programs Programs, to Destination) ([]string, error) {
	base, err := NewBase(ctx)
	if err != nil {
		return nil, err
	}
	images := []oci.Image{base.Node(programs), Scheduler(programs), Installer(programs)}
	var pushed []string
	for _, image := range images {
		name := path.Base(repository(image.Name))
		reference, err := oci.Push(ctx, strings.TrimSuffix(to.Registry, "/")+"/"+name+":"+to.Tag, image)
		if err != nil {
			return nil, err
		}
		pushed = append(pushed, reference)
	}
	return pushed, errors.Join(to.writeOverlay(pushed), to.writeValues(pushed))
}

// repository is the name of an image without its tag.
func repository(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// writeOverlay replaces the overlay. Images are named by their digests, in the order of the product's: what
// was pushed is what runs. An image that is not installed changes nothing.
func (d Destination) writeOverlay(pushed []string) error {
	if err := os.MkdirAll(d.Overlay, 0o755); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	folder, err := filepath.Abs(d.Overlay)
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	manifests, err := filepath.Abs(d.Manifests)
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	// Kustomize takes no absolute paths.
	relative, err := filepath.Rel(folder, manifests)
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, overlayHead, filepath.ToSlash(relative))
	for _, reference := range pushed {
		name, digest, _ := strings.Cut(reference, "@")
		local := path.Join(path.Dir(repository(NodeImage)), path.Base(name))
		fmt.Fprintf(&text, "- name: %s\n  newName: %s\n  digest: %s\n", local, name, digest)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	return nil
}

// writeValues writes values of the chart that name the images by their digests.
func (d Destination) writeValues(pushed []string) error {
	if err := os.MkdirAll(d.Overlay, 0o755); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	var text strings.Builder
	text.WriteString(valuesHead)
	fmt.Fprintf(&text, "  architectures: [%s]\n", runtime.GOARCH)
	for _, reference := range pushed {
		name, digest, _ := strings.Cut(reference, "@")
		fmt.Fprintf(&text, "  %s: {repository: %q, digest: %q}\n", path.Base(name), name, digest)
	}
	if err := os.WriteFile(filepath.Join(d.Overlay, ValuesFile), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	return nil
}

const valuesHead = `# Written by make push: the images that it pushed, for the chart deployments/helm/tessera.
images:
`

const overlayHead = `# Written by make push: installs the images that it pushed. With the scheduler, add one of
#   components: [%[1]s/scheduler/replace]
#   components: [%[1]s/scheduler/additional]
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- %[1]s
images:
`
