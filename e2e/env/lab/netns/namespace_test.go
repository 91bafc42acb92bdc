package netns

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNamespacesAreApartAndGoAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	path := filepath.Join(t.TempDir(), "netns")
	inside, err := Make(path)
	if err != nil {
		t.Fatal(err)
	}
	const link = "tlnetnstest"
	if err := inside.IP(t.Context(), "link add "+link+" type bridge"); err != nil {
		t.Fatal(err)
	}
	for _, place := range []struct {
		namespace Namespace
		want      bool
	}{{inside, true}, {Namespace(""), false}} {
		got, err := place.namespace.HasLink(t.Context(), link)
		if err != nil {
			t.Fatal(err)
		}
		if got != place.want {
			t.Errorf("link in namespace %q: %t, want %t", place.namespace, got, place.want)
		}
	}
	for range 2 { // a second call has no effect
		if err := inside.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file that held the namespace is still there")
	}
	if err := inside.Do(func() error { return nil }); err == nil {
		t.Error("a removed namespace was entered")
	}
}
