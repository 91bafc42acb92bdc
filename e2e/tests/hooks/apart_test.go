package hooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApart(t *testing.T) {
	got := Apart([]string{"prepare-container", "--host-driver-version", "580", "--link", "a::/a", "--link", "b::/b", "--folder", "/lib"})
	want := [][]string{
		{"create-symlinks", "--link", "a::/a", "--link", "b::/b"}, {"enable-cuda-compat", "--host-driver-version", "580"},
		{"update-ldcache", "--folder", "/lib"}, {"disable-device-node-modification"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("apart (-want +got):\n%s", diff)
	}
	if one := []string{"update-ldcache", "--folder", "/lib"}; !cmp.Equal(Apart(one), [][]string{one}) {
		t.Errorf("a single hook: %v", Apart(one))
	}
}
