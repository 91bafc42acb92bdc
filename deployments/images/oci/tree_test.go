package oci

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTreeKeepsModesAndLinks(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "lib/modules"), 0o755), os.Mkdir(filepath.Join(root, "root"), 0o700), os.Mkdir(filepath.Join(root, "dev"), 0o755),
		os.WriteFile(filepath.Join(root, "lib/modules/a.ko"), nil, 0o644), os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o644),
		os.Symlink("modules/a.ko", filepath.Join(root, "lib/link")), syscall.Mkfifo(filepath.Join(root, "lib/pipe"), 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Tree(root, func(name string) string {
		if strings.HasPrefix(name, "dev/") || name == "lib" {
			return ""
		}
		return strings.Replace(name, "lib/", "usr/lib/", 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []File{
		{Path: "/dev/", Mode: 0o755}, {Path: "/usr/lib/link", Link: "modules/a.ko", Mode: 0o777}, {Path: "/usr/lib/modules/", Mode: 0o755},
		{Path: "/usr/lib/modules/a.ko", Source: filepath.Join(root, "lib/modules/a.ko"), Mode: 0o644}, {Path: "/root/", Mode: 0o700},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
