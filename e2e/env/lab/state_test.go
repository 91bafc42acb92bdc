package lab

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFolderIsClaimedOnce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "lab")
	s, err := newState([]NodeSpec{{Name: "node1", GPU: "h100x8"}}, "1.36")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.claim(folder); err != nil {
		t.Fatal(err)
	}
	if err := s.claim(folder); !errors.Is(err, ErrExists) {
		t.Errorf("a second lab in the folder: %v, want ErrExists", err)
	}
	loaded, err := load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Nodes, loaded.Nodes); diff != "" || s.ID != loaded.ID || loaded.Kubernetes != "1.36" {
		t.Errorf("another lab was loaded: %s", diff)
	}
}

func TestForeignFolderIsLeftAlone(t *testing.T) {
	folder := t.TempDir()
	precious := filepath.Join(folder, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := newState(nil, "1.37")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.claim(folder); err == nil {
		t.Error("a lab was made in a folder with other things")
	}
	if err := Down(t.Context(), folder); err != nil {
		t.Errorf("ending no lab: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error("ending no lab removed a file")
	}
	if _, err := Open(folder, nil); !errors.Is(err, ErrNoLab) {
		t.Errorf("opening no lab: %v, want ErrNoLab", err)
	}
}

func TestMountPointsBelowAFolder(t *testing.T) {
	mountinfo := `27 1 254:0 / / rw - ext4 /dev/vda rw
50 27 0:51 / /run/labs/a/disk rw - tmpfs tmpfs rw
51 27 0:4 net:[4026532201] /run/labs/a/with\040blank rw - nsfs nsfs rw
52 27 0:52 / /run/labs/ab/disk rw - tmpfs tmpfs rw
53 50 0:53 / /run/labs/a/disk/below rw - tmpfs tmpfs rw
`
	want := []string{"/run/labs/a/disk", "/run/labs/a/with blank", "/run/labs/a/disk/below"}
	if diff := cmp.Diff(want, mountPoints(mountinfo, "/run/labs/a")); diff != "" {
		t.Error(diff)
	}
}

func TestConfigIsChecked(t *testing.T) {
	many := make([]NodeSpec, 200)
	tests := []struct {
		name  string
		nodes []NodeSpec
		ok    bool
	}{
		{"none", nil, true},
		{"two", []NodeSpec{{Name: "a"}, {Name: "b"}}, true},
		{"same name", []NodeSpec{{Name: "a"}, {Name: "a"}}, false},
		{"name of the control plane", []NodeSpec{{Name: "control-plane"}}, false},
		{"no name", []NodeSpec{{}}, false},
		{"path as a name", []NodeSpec{{Name: "../x"}}, false},
		{"GPUs that nobody builds", []NodeSpec{{Name: "a", GPU: "h100x8"}}, false},
		{"too many", many, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Config{Nodes: test.nodes, Cache: t.TempDir(), Progress: io.Discard}.complete()
			if (err == nil) != test.ok {
				t.Errorf("got %v, want ok %t", err, test.ok)
			}
		})
	}
}
