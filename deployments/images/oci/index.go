package oci

import (
	"errors"
	"maps"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// NewIndex builds one image for several architectures. The layers are compressed. Manifests and index have the labels that the specification of OCI images
// defines as annotations, because registries show these.
func NewIndex(images ...Image) (v1.ImageIndex, error) {
	if len(images) == 0 {
		return nil, errors.New("build an index: no images")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		built, err := image.Build(true)
		if err != nil {
			return nil, err
		}
		annotated, ok := mutate.Annotations(built, annotations(image.Labels)).(v1.Image)
		if !ok {
			return nil, errors.New("build an index: the annotated image is none")
		}
		platform := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: image.Architecture}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: annotated, Descriptor: platform})
	}
	annotated, ok := mutate.Annotations(index, annotations(images[0].Labels)).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("build an index: the annotated index is none")
	}
	return annotated, nil
}

// annotations returns the labels with a predefined name.
func annotations(labels map[string]string) map[string]string {
	all := maps.Clone(labels)
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, LabelPrefix) })
	return all
}
