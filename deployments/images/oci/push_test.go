package oci

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestPush pushes to a registry and pulls what the answer names.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	image := Image{Name: "localhost/tessera/node:dev", Architecture: "amd64", Layers: [][]File{{{Path: "/usr/bin/a", Content: []byte("a")}}}, Entrypoint: []string{"/usr/bin/a"}}
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/node"
	for range 2 {
		pushed, err := Push(t.Context(), repository+":v1", image)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(pushed, repository+"@sha256:") {
			t.Errorf("pushed %s", pushed)
		}
		reference, err := name.ParseReference(pushed)
		if err != nil {
			t.Fatal(err)
		}
		pulled, err := remote.Image(reference, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		file, err := pulled.ConfigFile()
		if err != nil || file.Architecture != "amd64" || file.Config.Entrypoint[0] != "/usr/bin/a" {
			t.Errorf("pulled %+v, %v", file, err)
		}
	}
	for _, bad := range []string{"no tag", repository, "registry.example.com/UPPER:v1"} {
		if _, err := Push(t.Context(), bad, image); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("push to %q: %v", bad, err)
		}
	}
	server.Close()
	if _, err := Push(t.Context(), repository+":v1", image); err == nil {
		t.Error("pushed to a registry that is gone")
	}
}
