// Package oci builds container images from lists of files, without a container engine or a registry. The same files give the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of a layer. Its content is Content, or the file Source of the host; with Link it is a symbolic link, with a trailing slash in
// Path a folder. Folders above an entry are made as needed, owned by root and open to all for reading, as is everything else.
type File struct {
	Path    string
	Source  string
	Content []byte
	Link    string
	Mode    fs.FileMode // permission bits; zero means 0755 for folders and sources, 0644 for content
}

// Image is a recipe of an image.
type Image struct {
	// Name is the reference under which nodes find the image.
	Name string
	// Architecture in Go's words.
	Architecture string
	// Layers from the lowest up.
	Layers     [][]File
	Entrypoint []string
	Env        []string
	// User is the user and the group of the program; root if empty.
	User   string
	Labels map[string]string
	// Created is the time that the image has; none if zero.
	Created time.Time
}

// LabelPrefix is the prefix of the labels and annotations that the specification of OCI images defines.
const LabelPrefix = "org.opencontainers.image."

// Build reads the files and makes the image. Its layers are compressed with gzip, or not at all.
func (i Image) Build(compress bool) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, files := range i.Layers {
		layer, err := layer(files, compress)
		if err != nil {
			return nil, fmt.Errorf("build image %s: %w", i.Name, err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, fmt.Errorf("build image %s: %w", i.Name, err)
		}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", i.Name, err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", i.Architecture, v1.Time{Time: i.Created}
	file.Config = v1.Config{User: i.User, Entrypoint: i.Entrypoint, Env: i.Env, Labels: i.Labels}
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", i.Name, err)
	}
	return image, nil
}

func layer(files []File, compress bool) (v1.Layer, error) {
	content, err := archive(files)
	if err != nil {
		return nil, err
	}
	if !compress {
		return static.NewLayer(content, types.OCIUncompressedLayer), nil
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// archive writes the entries in the order of their paths, without times or owners.
func archive(files []File) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range complete(files) {
		if err := file.write(writer); err != nil {
			return nil, fmt.Errorf("add %s: %w", file.Path, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("write a layer: %w", err)
	}
	return buffer.Bytes(), nil
}

// complete sorts the entries and adds the folders above them. Paths become relative, as layers have them.
func complete(files []File) []File {
	seen := map[string]bool{".": true, "": true}
	var all []File
	for _, file := range files {
		folder := strings.HasSuffix(file.Path, "/")
		file.Path = strings.TrimPrefix(path.Clean(file.Path), "/")
		if folder {
			file.Path += "/"
		}
		all = append(all, file)
		seen[strings.TrimSuffix(file.Path, "/")] = true
	}
	for _, file := range all {
		for dir := path.Dir(strings.TrimSuffix(file.Path, "/")); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, File{Path: dir + "/"})
		}
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

var errTwoContents = errors.New("a file has one of Source, Content and Link")

func (f File) write(writer *tar.Writer) error {
	header := &tar.Header{Name: f.Path, Mode: int64(f.mode()), Format: tar.FormatPAX}
	content := f.Content
	switch {
	case strings.HasSuffix(f.Path, "/"):
		header.Typeflag = tar.TypeDir
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
	default:
		header.Typeflag = tar.TypeReg
	}
	if f.Source != "" && (f.Content != nil || f.Link != "") || f.Content != nil && f.Link != "" {
		return errTwoContents
	}
	if f.Source != "" {
		read, err := os.ReadFile(f.Source)
		if err != nil {
			return err
		}
		content = read
	}
	header.Size = int64(len(content))
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err := writer.Write(content)
	return err
}

func (f File) mode() fs.FileMode {
	switch {
	case f.Mode != 0:
		return f.Mode.Perm()
	case f.Content != nil:
		return 0o644
	default:
		return 0o755
	}
}
