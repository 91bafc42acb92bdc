package release

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// indexes returns the images of the release by name.
func (r published) indexes(t *testing.T) map[string]v1.ImageIndex {
	t.Helper()
	all, err := oci.ReadIndexes(filepath.Join(r.folder, "images_"+r.version+".tar"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]v1.ImageIndex{}
	for reference, index := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(reference, r.registry+"/"), ":")
		byName[name] = index
	}
	return byName
}

// imagesOf returns the images of an index by architecture.
func imagesOf(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		if images[descriptor.Platform.Architecture], err = index.Image(descriptor.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return images
}

// testImages checks what each image contains for each architecture, and its labels.
func (r published) testImages(t *testing.T) {
	want := map[string][]string{
		"node":      {"tessera-hook", "tessera-node"},
		"scheduler": {"tessera-scheduler"},
		"installer": {"tessera-installer"},
	}
	indexes := r.indexes(t)
	for name, programs := range want {
		images := imagesOf(t, indexes[name])
		if len(images) != 2 {
			t.Errorf("%s has the architectures %v", name, images)
		}
		for architecture, image := range images {
			files := untar(t, mutate.Extract(image))
			var found []string
			for file := range files {
				if dir, program := filepath.Split(file); dir == "usr/bin/" {
					found = append(found, program)
				}
			}
			if slices.Sort(found); !slices.Equal(found, programs) {
				t.Errorf("%s for %s has the programs %v, want %v", name, architecture, found, programs)
			}
			record := string(files["var/lib/dpkg/status.d/libc6"])
			if name == "node" && (!strings.Contains(record, "\nArchitecture: "+architecture+"\n") || len(files["etc/os-release"]) == 0) {
				t.Errorf("%s for %s has the record %q of the C library", name, architecture, record)
			}
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			labels := config.Config.Labels
			if config.Architecture != architecture || labels[oci.LabelPrefix+"version"] != r.version || len(labels[oci.LabelPrefix+"revision"]) != 40 || config.Created.IsZero() {
				t.Errorf("%s for %s: architecture %s, created %s, labels %v", name, architecture, config.Architecture, config.Created, labels)
			}
		}
	}
}

// testARM64 runs the agent of the image for arm64 in an emulator until it has read GPUs through a fake library for arm64.
func (r published) testARM64(t *testing.T) {
	compiler, err := exec.LookPath("aarch64-linux-gnu-gcc")
	if err != nil {
		t.Fatal(err)
	}
	image := t.TempDir()
	unpack(t, mutate.Extract(imagesOf(t, r.indexes(t)["node"])["arm64"]), image)
	machine := t.TempDir()
	env := []string{"FAKE_NVML_DEV=" + filepath.Join(fakegpu.DevRoot(machine), "dev")}
	agent := func(args ...string) string {
		return runWith(t, image, env, "qemu-aarch64", append([]string{"-L", image, filepath.Join(image, "usr/bin/tessera-node")}, args...)...)
	}
	if got := agent("version"); !strings.HasPrefix(got, r.version+" go1.") {
		t.Errorf("the agent has the version %q", got)
	}
	// The fake GPU is compiled with gcc, into a cache of its architecture.
	compilers := t.TempDir()
	if err := os.Symlink(compiler, filepath.Join(compilers, "gcc")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", compilers+":"+os.Getenv("PATH"))
	t.Setenv("TESSERA_CACHE", t.TempDir())
	if err := fakegpu.Install(t.Context(), machine, fakegpu.Spec{Machine: "h100x8"}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(machine, "node.yaml")
	text := fmt.Sprintf("apiVersion: tessera.dev/v1alpha1\nkind: NodeConfig\nroots: {host: %q, proc: %q, sys: %q, driver: %q, dev: %q}\n",
		machine, fakegpu.ProcRoot(machine), fakegpu.SysRoot(machine), fakegpu.DriverRoot(machine), fakegpu.DevRoot(machine))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Tessera string
		Node    gpu.Node
	}
	if err := json.Unmarshal([]byte(agent("gatherinfo", "--config="+config)), &facts); err != nil {
		t.Fatal(err)
	}
	if len(facts.Node.GPUs) != 8 || facts.Node.GPUs[0].Geometry.Slices() == 0 {
		t.Errorf("read %+v", facts)
	}
}

// unpack writes the folders, files and links of an image's file system.
func unpack(t *testing.T, content io.ReadCloser, folder string) {
	t.Helper()
	defer content.Close() //nolint:errcheck // only read
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(folder, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(target, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, target)
		default:
			var text []byte
			if text, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(target, text, header.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
