package dist

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// architectures are those of the images, in Go's words.
var architectures = []string{"amd64", "arm64"}

// image is an image of the release for all architectures.
type image struct {
	component  string // node, scheduler or installer
	repository string
	tag        string
	digest     string
	kubernetes string // the minor version of Kubernetes from which it is built; empty if it serves all
}

// images are those of a release.
type images []image

// references returns the names with tags and digests.
func (all images) references() []string {
	var list []string
	for _, i := range all {
		list = append(list, i.repository+":"+i.tag+"@"+i.digest)
	}
	return list
}

// imagesFile is the archive with all images.
func imagesFile(version string) string { return "images_" + version + ".tar" }

// writeImages writes an archive in the format of OCI layouts with one index for each image.
func (r *release) writeImages(ctx context.Context) (images, error) {
	recipes := map[string][]oci.Image{}
	for _, architecture := range architectures {
		programs, err := r.programs(ctx, platform{"linux", architecture})
		if err != nil {
			return nil, err
		}
		built, err := bundle.Images(ctx, programs)
		if err != nil {
			return nil, err
		}
		for _, one := range built {
			one.Created = r.time
			component := strings.TrimPrefix(one.Labels[oci.LabelPrefix+"title"], "tessera-")
			recipes[component] = append(recipes[component], one)
		}
	}
	var all images
	indexes := map[string]v1.ImageIndex{}
	for _, component := range []string{"node", "scheduler", "installer"} {
		index, err := oci.NewIndex(recipes[component]...)
		if err != nil {
			return nil, err
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, fmt.Errorf("build the images of %s: %w", component, err)
		}
		one := image{
			component: component, repository: r.Registry + "/" + component, tag: r.Version, digest: digest.String(),
			kubernetes: recipes[component][0].Labels[bundle.KubernetesLabel],
		}
		if one.kubernetes != "" {
			one.tag += "-kubernetes-" + one.kubernetes
		}
		indexes[one.repository+":"+one.tag] = index
		all = append(all, one)
	}
	if err := oci.WriteIndexes(filepath.Join(r.Out, imagesFile(r.Version)), indexes); err != nil {
		return nil, err
	}
	r.report(imagesFile(r.Version))
	return all, nil
}

// programs compiles the programs of the images and writes the lists of their components.
func (r *release) programs(ctx context.Context, p platform) (bundle.Programs, error) {
	folder := filepath.Join(r.folder, "images", p.architecture)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return bundle.Programs{}, fmt.Errorf("build the images: %w", err)
	}
	programs, err := bundle.Programs{Target: r.target(p)}.CompleteAll(ctx, r.Source, folder)
	if err != nil {
		return bundle.Programs{}, err
	}
	for _, program := range []string{programs.Node, programs.Hook, programs.Scheduler, programs.Installer} {
		if err := r.writeSBOM(ctx, program, r.name(path.Base(program), p)); err != nil {
			return bundle.Programs{}, err
		}
	}
	return programs, nil
}
