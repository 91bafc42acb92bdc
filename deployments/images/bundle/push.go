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
	// Registry is a registry with a path, such as registry.example.com/tessera. Tag is the tag of every image; that of the scheduler ends with the version
	// of Kubernetes from which it is built, such as v1-kubernetes-1.37.
	Registry, Tag string
	// Overlay is the folder that gets what installs the images that were pushed: values of the chart, and a kustomization
	// of Manifests.
	Overlay, Manifests string
}

// ValuesFile is the file in the overlay with values of the chart.
const ValuesFile = "values.yaml"

// Push builds the product's images, pushes them and writes the overlay. It returns the images by digest.
func Push(ctx context.Context, programs Programs, to Destination) ([]string, error) {
	images, err := Images(ctx, programs)
	if err != nil {
		return nil, err
	}
	var pushed []pushedImage
	var references []string
	for _, image := range images {
		one := pushedImage{name: path.Base(repository(image.Name)), kubernetes: image.Labels[KubernetesLabel]}
		reference, err := oci.Push(ctx, strings.TrimSuffix(to.Registry, "/")+"/"+one.name+":"+to.tag(one), image)
		if err != nil {
			return nil, err
		}
		one.repository, one.digest, _ = strings.Cut(reference, "@")
		pushed, references = append(pushed, one), append(references, reference)
	}
	return references, errors.Join(to.writeOverlay(pushed), to.writeValues(pushed))
}

// pushedImage is an image in the registry. kubernetes is the minor version of Kubernetes from which it is built; empty if it serves all.
type pushedImage struct{ name, repository, digest, kubernetes string }

// tag returns the tag of an image: schedulers of several versions of Kubernetes are in one repository.
func (d Destination) tag(image pushedImage) string {
	if image.kubernetes == "" {
		return d.Tag
	}
	return d.Tag + "-kubernetes-" + image.kubernetes
}

// repository is the name of an image without its tag.
func repository(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// writeOverlay replaces the overlay. Images are named by their digests, in the order of the product's: what
// was pushed is what runs. An image that is not installed changes nothing.
func (d Destination) writeOverlay(pushed []pushedImage) error {
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
	for _, image := range pushed {
		local := path.Join(path.Dir(repository(NodeImage)), image.name)
		fmt.Fprintf(&text, "- name: %s\n  newName: %s\n  digest: %s\n", local, image.repository, image.digest)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	return nil
}

// writeValues writes values of the chart that name the images by their digests, and schedulers by the version of Kubernetes: Helm merges the values of
// several pushes.
func (d Destination) writeValues(pushed []pushedImage) error {
	if err := os.MkdirAll(d.Overlay, 0o755); err != nil {
		return fmt.Errorf("write the chart's values: %w", err)
	}
	var text strings.Builder
	text.WriteString(valuesHead)
	fmt.Fprintf(&text, "  architectures: [%s]\n", runtime.GOARCH)
	for _, image := range pushed {
		if image.kubernetes != "" {
			fmt.Fprintf(&text, "  %s: {repository: %q, kubernetes: {%q: {digest: %q}}}\n", image.name, image.repository, image.kubernetes, image.digest)
			continue
		}
		fmt.Fprintf(&text, "  %s: {repository: %q, digest: %q}\n", image.name, image.repository, image.digest)
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
