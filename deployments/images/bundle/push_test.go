package bundle

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/yaml"
)

// TestPush pushes the product's images and reads the overlay that installs them.
func TestPush(t *testing.T) {
	needDebian(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	to := Destination{
		Registry: strings.TrimPrefix(server.URL, "http://") + "/tessera/", Tag: "v1",
		Overlay: filepath.Join(dir, "bin", "deploy"), Manifests: filepath.Join(dir, "deployments"),
	}
	pushed, err := Push(t.Context(), Programs{Node: program, Hook: program, Scheduler: program, Installer: program}, to)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to.Overlay, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct {
		Resources []string
		Images    []struct{ Name, NewName, Digest string }
	}
	if err := yaml.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	if len(overlay.Resources) != 1 || overlay.Resources[0] != "../../deployments" || len(overlay.Images) != 3 || len(pushed) != 3 {
		t.Fatalf("overlay: %+v, pushed %v", overlay, pushed)
	}
	for i, local := range []string{NodeImage, SchedulerImage, InstallerImage} {
		image := overlay.Images[i]
		if image.Name+":dev" != local || image.NewName+"@"+image.Digest != pushed[i] {
			t.Errorf("overlay installs %+v, pushed was %v", image, pushed)
		}
	}
	if text, err = os.ReadFile(filepath.Join(to.Overlay, ValuesFile)); err != nil {
		t.Fatal(err)
	}
	var values struct {
		Images struct {
			Architectures              []string
			Node, Scheduler, Installer struct{ Repository, Digest string }
		}
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	images := values.Images
	for i, got := range []struct{ Repository, Digest string }{images.Node, images.Scheduler, images.Installer} {
		if got.Repository+"@"+got.Digest != pushed[i] {
			t.Errorf("values install %+v, pushed was %s", got, pushed[i])
		}
	}
	if !slices.Equal(images.Architectures, []string{runtime.GOARCH}) {
		t.Errorf("values are for the architectures %v, pushed was %s", images.Architectures, runtime.GOARCH)
	}
}
