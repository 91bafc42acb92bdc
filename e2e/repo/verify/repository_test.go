package verify

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tessera-gpu/tessera"

// root returns the top folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// listedPackage has the fields of go list's output that the tests use.
type listedPackage struct {
	ImportPath, Name, Dir              string
	Imports, TestImports, XTestImports []string
	CgoFiles                           []string
	Standard                           bool
}

// goList runs go list -json in the root of the repository.
func goList(t *testing.T, args ...string) []listedPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var packages []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatalf("decode the answer of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// files calls visit with every file of the repository that has one of the extensions or names, by its
// path below the root. The folder of version control and build outputs are skipped.
func files(t *testing.T, visit func(path string, text string), kinds ...string) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if relative == ".git" || relative == "bin" || relative == "dist" {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(kinds, filepath.Ext(path)) && !slices.Contains(kinds, entry.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(relative), string(text))
		return nil
	})
	if err != nil {
		t.Fatalf("walk the repository: %v", err)
	}
}
