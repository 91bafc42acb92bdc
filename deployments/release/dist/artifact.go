package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// Media types of Helm's artifacts.
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// chartArtifact is a chart as an artifact of a registry, with the content that `helm push` gives it, but without a time.
type chartArtifact struct {
	config, manifest []byte
	content          v1.Layer
}

var _ partial.CompressedImageCore = chartArtifact{}

// newChartArtifact makes the artifact of a packed chart.
func newChartArtifact(packed []byte) (v1.Image, error) {
	chartYAML, err := fileOf(packed, "tessera/Chart.yaml")
	if err != nil {
		return nil, err
	}
	a := chartArtifact{content: static.NewLayer(packed, chartContent)}
	var name, version string
	if a.config, name, version, err = chartMetadata(chartYAML); err != nil {
		return nil, err
	}
	layer, err := partial.Descriptor(a.content)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(a.config))
	if err != nil {
		return nil, err
	}
	a.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config:      v1.Descriptor{MediaType: chartConfig, Size: size, Digest: digest},
		Layers:      []v1.Descriptor{*layer},
		Annotations: map[string]string{oci.LabelPrefix + "title": name, oci.LabelPrefix + "version": version},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

// RawConfigFile returns the metadata of the chart.
func (a chartArtifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// MediaType returns that of the manifest.
func (a chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest returns the manifest.
func (a chartArtifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// LayerByDigest returns the only layer.
func (a chartArtifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.content, nil }

// fileOf returns a file of a compressed archive.
func fileOf(packed []byte, name string) ([]byte, error) {
	decompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	reader := tar.NewReader(decompressed)
	for {
		header, err := reader.Next()
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
		if header.Name == name {
			return io.ReadAll(reader)
		}
	}
}
