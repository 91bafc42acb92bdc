// Package driver tests the product with NVIDIA's own user space: the drivers that Debian packages, which packages.sh unpacks. There is no GPU, so
// that the programs and libraries answer what they answer where no kernel module is loaded.
package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root is an unpacked driver.
type Root struct {
	// Version is that of the driver, such as 535.261.03.
	Version string
	// Path is the root of its files.
	Path string
}

// folder has the libraries of the driver, below a root.
const folder = "usr/lib/x86_64-linux-gnu/nvidia/current"

// Each runs the test with every driver, as a subtest with the name of the version. It skips the test where the variable that make test-driver sets is
// empty, and fails it where there is no driver.
func Each(t *testing.T, test func(t *testing.T, root Root)) {
	t.Helper()
	roots := os.Getenv("TESSERA_DRIVER_ROOTS")
	if roots == "" {
		t.Skip("NVIDIA's files are not in the repository: make test-driver downloads them")
	}
	libraries, err := filepath.Glob(filepath.Join(roots, "*", folder, "libcuda.so.*.*"))
	if err != nil || len(libraries) == 0 {
		t.Fatalf("no drivers in %s: %v", roots, err)
	}
	for _, library := range libraries {
		_, version, _ := strings.Cut(filepath.Base(library), ".so.")
		root := strings.TrimSuffix(filepath.Dir(library), "/"+folder)
		t.Run(version, func(t *testing.T) { test(t, Root{Version: version, Path: root}) })
	}
}

// Library returns the path of one of the driver's libraries, such as libcuda.
func (r Root) Library(name string) string {
	return filepath.Join(r.Path, folder, name+".so."+r.Version)
}

// Copy returns a copy of the driver that a test may damage: its files are those of the driver as long as they are only replaced or removed.
func (r Root) Copy(t *testing.T) Root {
	t.Helper()
	top, err := os.MkdirTemp(filepath.Dir(r.Path), "copy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	err = filepath.WalkDir(r.Path, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(top, strings.TrimPrefix(path, r.Path))
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		}
		return os.Link(path, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	return Root{Version: r.Version, Path: top}
}
