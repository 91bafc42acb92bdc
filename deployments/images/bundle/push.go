package bundle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// Destination is where the product's images go and from where a cluster installs them.
type Destination struct {
	// Registry is a registry with a path, such as registry.example.com/tessera; Tag is the tag of every image.
	Registry, Tag string
	// Overlay is the folder that gets a kustomization which installs Manifests with the images that were
	// pushed.
	Overlay, Manifests string
}

// Push builds the product's images, pushes them and writes the overlay. It returns the images by digest.
func Push(ctx context.Context, programs Programs, to Destination) ([]string, error) {
	base, err := NewBase(ctx)
	if err != nil {
		return nil, err
	}
	pushed, err := oci.Push(ctx, strings.TrimSuffix(to.Registry, "/")+"/node:"+to.Tag, base.Node(programs))
	if err != nil {
		return nil, err
	}
	if err := to.writeOverlay(pushed); err != nil {
		return nil, err
	}
	return []string{pushed}, nil
}

// writeOverlay replaces the overlay. The image is named by its digest: what was pushed is what runs.
func (d Destination) writeOverlay(node string) error {
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
	repository, digest, _ := strings.Cut(node, "@")
	local, _, _ := strings.Cut(NodeImage, ":")
	text := fmt.Sprintf(`# Written by make push: installs the images that it pushed.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- %s
images:
- name: %s
  newName: %s
  digest: %s
`, filepath.ToSlash(relative), local, repository, digest)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	return nil
}
