package dist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// Publish pushes the images and the chart of a release to the references that it names, with the credentials of `docker login`, and prints each. A digest
// that differs from the release's is an error.
func Publish(ctx context.Context, folder string, progress io.Writer) error {
	text, err := os.ReadFile(filepath.Join(folder, ReferencesFile))
	if err != nil {
		return fmt.Errorf("publish a release: %w", err)
	}
	unpacked, err := os.MkdirTemp("", "tessera-release-")
	if err != nil {
		return fmt.Errorf("publish a release: %w", err)
	}
	defer os.RemoveAll(unpacked) //nolint:errcheck // a leftover is harmless
	p := publisher{options: []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
	if p.images, p.chart, err = read(folder, unpacked); err != nil {
		return fmt.Errorf("publish a release: %w", err)
	}
	for reference := range strings.FieldsSeq(string(text)) {
		if err := p.push(reference); err != nil {
			return fmt.Errorf("publish %s: %w", reference, err)
		}
		fmt.Fprintln(progress, reference) //nolint:errcheck // progress is for the eye
	}
	return nil
}

// publisher has the content of a release.
type publisher struct {
	images  map[string]v1.ImageIndex
	chart   v1.Image
	options []remote.Option
}

// read reads the images and the chart of a release, of which it must have one archive each.
func read(folder, unpacked string) (map[string]v1.ImageIndex, v1.Image, error) {
	archive, err := only(filepath.Join(folder, imagesFile("*")))
	if err != nil {
		return nil, nil, err
	}
	indexes, err := oci.ReadIndexes(archive, unpacked)
	if err != nil {
		return nil, nil, err
	}
	packed, err := only(filepath.Join(folder, chartFile("*")))
	if err != nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(packed)
	if err != nil {
		return nil, nil, err
	}
	chart, err := newChartArtifact(content)
	return indexes, chart, err
}

// only returns the only file that matches.
func only(pattern string) (string, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("%d files match %s, want one", len(files), pattern)
	}
	return files[0], nil
}

var errOther = errors.New("the archive has another digest")

// push writes an index or the chart to a reference with tag and digest.
func (p publisher) push(reference string) error {
	tagged, digest, _ := strings.Cut(reference, "@")
	tag, err := name.NewTag(tagged, name.StrictValidation)
	if err != nil {
		return err
	}
	var content interface{ Digest() (v1.Hash, error) } = p.chart
	index, image := p.images[tagged]
	if image {
		content = index
	}
	got, err := content.Digest()
	if err != nil {
		return err
	}
	if got.String() != digest {
		return fmt.Errorf("%w: %s", errOther, got)
	}
	if image {
		return remote.WriteIndex(tag, index, p.options...)
	}
	return remote.Write(tag, p.chart, p.options...)
}
