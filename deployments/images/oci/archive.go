package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
)

// annotations by which containerd names what it imports.
const (
	imageName = "io.containerd.image.name"
	refName   = "org.opencontainers.image.ref.name"
)

// WriteArchive builds the images and writes them as one OCI layout in a tar file, which `ctr images import` and other tools read.
// The layers are not compressed: archives are for this machine, and compression is most of the time of building and importing them.
// The file appears whole or not at all.
func WriteArchive(target string, images ...Image) error {
	var manifests []mutate.IndexAddendum
	for _, image := range images {
		built, err := image.Build(false)
		if err != nil {
			return err
		}
		manifests = append(manifests, named(image.Name, built))
	}
	return writeLayout(target, manifests)
}

// WriteIndexes writes indexes of images, by their references, like WriteArchive.
func WriteIndexes(target string, indexes map[string]v1.ImageIndex) error {
	var manifests []mutate.IndexAddendum
	for _, reference := range slices.Sorted(maps.Keys(indexes)) {
		manifests = append(manifests, named(reference, indexes[reference]))
	}
	return writeLayout(target, manifests)
}

// ReadIndexes reads the indexes of an archive by their references. It unpacks the archive into the folder, from which the indexes are read when they are used.
func ReadIndexes(archive, folder string) (map[string]v1.ImageIndex, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	if err := unpack(tar.NewReader(file), folder); err != nil {
		return nil, fmt.Errorf("read images from %s: %w", archive, err)
	}
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("read images from %s: %w", archive, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read images from %s: %w", archive, err)
	}
	indexes := map[string]v1.ImageIndex{}
	for _, descriptor := range manifest.Manifests {
		if indexes[descriptor.Annotations[refName]], err = all.ImageIndex(descriptor.Digest); err != nil {
			return nil, fmt.Errorf("read images from %s: %w", archive, err)
		}
	}
	return indexes, nil
}

// unpack writes regular files below a folder, which no name of the archive can leave.
func unpack(reader *tar.Reader, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only its descriptor
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		file, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, reader)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
}

func named(name string, manifest mutate.Appendable) mutate.IndexAddendum {
	return mutate.IndexAddendum{Add: manifest, Descriptor: v1.Descriptor{Annotations: map[string]string{imageName: name, refName: name}}}
}

func writeLayout(target string, manifests []mutate.IndexAddendum) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("write images to %s: %w", target, err)
	}
	folder, err := os.MkdirTemp(filepath.Dir(target), ".layout-")
	if err != nil {
		return fmt.Errorf("write images to %s: %w", target, err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a leftover is harmless
	if _, err := layout.Write(folder, mutate.AppendManifests(empty.Index, manifests...)); err != nil {
		return fmt.Errorf("write images to %s: %w", target, err)
	}
	if err := pack(folder, target); err != nil {
		return fmt.Errorf("write images to %s: %w", target, err)
	}
	return nil
}

// pack writes the folder's files, sorted and without times, to a tar file.
func pack(folder, target string) error {
	file, err := atomicfile.Create(target, atomicfile.Options{Mode: 0o644})
	if err != nil {
		return err
	}
	writer := tar.NewWriter(file)
	if err := errors.Join(packAll(writer, folder), writer.Close()); err != nil {
		return errors.Join(err, file.Abort())
	}
	return file.Commit()
}

func packAll(writer *tar.Writer, folder string) error {
	paths, err := filesBelow(folder)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := packFile(writer, folder, path); err != nil {
			return err
		}
	}
	return nil
}

func packFile(writer *tar.Writer, folder, path string) error {
	file, err := os.Open(filepath.Join(folder, path))
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(path), Mode: 0o644, Size: info.Size(), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(writer, file)
	return err
}

// filesBelow lists the files of a folder in order.
func filesBelow(folder string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		paths = append(paths, relative)
		return err
	})
	return paths, err // WalkDir goes in lexical order
}
