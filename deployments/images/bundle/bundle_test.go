package bundle

import (
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/deployments/images/userland"
)

// needDebian leaves a test out where no images can be built.
func needDebian(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("images are built from the packages of Debian and Ubuntu: there is no dpkg-query here")
	}
	if matches, _ := filepath.Glob("/*/busybox"); len(matches) == 0 {
		t.Skip("needs the package busybox-static; `make lab` installs it")
	}
}

func paths(image oci.Image) []string {
	var list []string
	for _, layer := range image.Layers {
		for _, file := range layer {
			list = append(list, file.Path)
		}
	}
	return list
}

func TestBaseHoldsTheCLibraryAndItsLoader(t *testing.T) {
	needDebian(t)
	base, err := NewBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := base.Image(UserlandImage, oci.File{Path: "/usr/bin/extra", Content: []byte("x")})
	if image.Labels[userland.LibcLabel] == "" {
		t.Error("the image does not name its C library")
	}
	var names []string
	for _, file := range paths(image) {
		names = append(names, path.Base(file))
	}
	for _, want := range []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "sh", "extra"} {
		if !slices.Contains(names, want) {
			t.Errorf("the image lacks %s", want)
		}
	}
	if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "ld-linux") }) {
		t.Error("the image lacks the loader")
	}
	if _, err := image.Build(false); err != nil {
		t.Error(err)
	}
}

func TestStaticImageHoldsNoLibrary(t *testing.T) {
	needDebian(t)
	image, err := Static(t.Context(), "localhost/static")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range paths(image) {
		if strings.Contains(path.Base(file), ".so") {
			t.Errorf("the image holds %s", file)
		}
	}
	if label, ok := image.Labels[userland.LibcLabel]; ok {
		t.Errorf("the image claims to hold the C library %s", label)
	}
}

func TestImagesOfOneBaseAreIndependent(t *testing.T) {
	base := Base{Layers: [][]oci.File{{{Path: "/a"}}}, Labels: map[string]string{"k": "v"}}
	first := base.Image("first", oci.File{Path: "/first"})
	second := base.Image("second", oci.File{Path: "/second"})
	first.Labels["k"] = "changed"
	if !slices.Equal(paths(first), []string{"/a", "/first"}) || !slices.Equal(paths(second), []string{"/a", "/second"}) || second.Labels["k"] != "v" {
		t.Errorf("images share what is theirs alone: %v, %v, %v", paths(first), paths(second), second.Labels)
	}
}
