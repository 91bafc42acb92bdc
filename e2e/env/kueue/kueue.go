// Package kueue provides Kueue for a lab: its program, built from its module, as an image with the name of the published one, and its chart.
package kueue

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/deployments/images/userland"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Kueue is a version of Kueue.
type Kueue struct {
	// Version is such as 0.19.2.
	Version string
	// Chart is the folder of the chart, Image the archive with the image of the manager, Repository its name without the tag.
	Chart, Image, Repository string
}

// New builds Kueue, if it is missing in the cache: ten minutes on an empty build cache. The image is written into the folder.
func New(ctx context.Context, folder string, progress io.Writer) (Kueue, error) {
	builder, err := binaries.NewBuilder("", progress)
	if err != nil {
		return Kueue{}, err
	}
	built, err := builder.BuildKueue(ctx)
	if err != nil {
		return Kueue{}, err
	}
	k := Kueue{
		Version: built.Version, Chart: filepath.Join(built.Module, "charts", "kueue"), Image: filepath.Join(folder, "kueue.tar"),
		Repository: "registry.k8s.io/kueue/kueue",
	}
	manager := oci.File{Path: "/manager", Source: filepath.Join(built.Folder, "kueue"), Mode: 0o755}
	image := oci.Image{ // the user is that of the published image, which the chart requires
		Name: k.Repository + ":v" + k.Version, Architecture: runtime.GOARCH, User: "65532:65532", Layers: [][]oci.File{append(userland.Accounts(), manager)},
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return Kueue{}, err
	}
	return k, oci.WriteArchive(k.Image, image)
}
