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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
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
	pushed, err := Push(t.Context(), Programs{Node: program, Hook: program, Scheduler: schedulerProgram(t, dir), Installer: program}, to)
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
			Architectures   []string
			Node, Installer struct{ Repository, Digest string }
			Scheduler       struct {
				Repository string
				Kubernetes map[string]struct{ Digest string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	images := values.Images
	for i, got := range []string{
		images.Node.Repository + "@" + images.Node.Digest,
		images.Scheduler.Repository + "@" + images.Scheduler.Kubernetes["1.37"].Digest,
		images.Installer.Repository + "@" + images.Installer.Digest,
	} {
		if got != pushed[i] {
			t.Errorf("values install %s, pushed was %s", got, pushed[i])
		}
	}
	tags, err := remote.List(schedulers(t, images.Scheduler.Repository), remote.WithContext(t.Context()))
	if err != nil || !slices.Equal(tags, []string{"v1-kubernetes-1.37"}) {
		t.Errorf("tags of the scheduler: %v, %v", tags, err)
	}
	if !slices.Equal(images.Architectures, []string{runtime.GOARCH}) {
		t.Errorf("values are for the architectures %v, pushed was %s", images.Architectures, runtime.GOARCH)
	}
}

// schedulers returns the repository of the schedulers.
func schedulers(t *testing.T, repository string) name.Repository {
	t.Helper()
	parsed, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
