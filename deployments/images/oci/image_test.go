package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestArchivesAreReproducible(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	write(t, program, "binary")
	image := func(order ...int) Image {
		files := []File{{Path: "/usr/bin/program", Source: program}, {Path: "/etc/os-release", Content: []byte("NAME=x\n")}, {Path: "/lib", Link: "usr/lib"}}
		var layer []File
		for _, i := range order {
			layer = append(layer, files[i])
		}
		return Image{
			Name: "localhost/x:1", Architecture: "amd64", Layers: [][]File{layer},
			Entrypoint: []string{"/usr/bin/program"}, Labels: map[string]string{"b": "1", "a": "2"},
		}
	}
	first, second := filepath.Join(folder, "first.tar"), filepath.Join(folder, "second.tar")
	if err := WriteArchive(first, image(0, 1, 2)); err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(time.Hour)
	if err := os.Chtimes(program, late, late); err != nil {
		t.Fatal(err)
	}
	if err := WriteArchive(second, image(2, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if sum(t, first) != sum(t, second) {
		t.Error("the same files in another order and with other times gave another archive")
	}
}

func TestLayerHasTheRequestedFiles(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	write(t, source, "from the host")
	content, err := archive([]File{
		{Path: "/usr/bin/tool", Source: source},
		{Path: "/etc/secret", Content: []byte("s"), Mode: 0o600},
		{Path: "/bin", Link: "usr/bin"},
		{Path: "/var/empty/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	type entry struct {
		Name, Link, Content string
		Mode                int64
		Kind                byte
	}
	var got []entry
	reader := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", header.Name, header.Uid, header.Gid)
		}
		got = append(got, entry{header.Name, header.Linkname, string(text), header.Mode, header.Typeflag})
	}
	want := []entry{
		{Name: "bin", Link: "usr/bin", Mode: 0o755, Kind: tar.TypeSymlink},
		{Name: "etc/", Mode: 0o755, Kind: tar.TypeDir},
		{Name: "etc/secret", Content: "s", Mode: 0o600, Kind: tar.TypeReg},
		{Name: "usr/", Mode: 0o755, Kind: tar.TypeDir},
		{Name: "usr/bin/", Mode: 0o755, Kind: tar.TypeDir},
		{Name: "usr/bin/tool", Content: "from the host", Mode: 0o755, Kind: tar.TypeReg},
		{Name: "var/", Mode: 0o755, Kind: tar.TypeDir},
		{Name: "var/empty/", Mode: 0o755, Kind: tar.TypeDir},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for name, file := range map[string]File{
		"missing source": {Path: "/a", Source: filepath.Join(t.TempDir(), "none")},
		"two contents":   {Path: "/a", Source: os.Args[0], Content: []byte("x")},
		"link and text":  {Path: "/a", Link: "b", Content: []byte("x")},
	} {
		target := filepath.Join(t.TempDir(), "x.tar")
		if err := WriteArchive(target, Image{Name: "localhost/x:1", Layers: [][]File{{file}}}); err == nil {
			t.Errorf("%s was accepted", name)
		}
		if _, err := os.Stat(target); err == nil {
			t.Errorf("%s left an archive", name)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func sum(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}
