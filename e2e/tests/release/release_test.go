// Package release makes a release twice, in two clones of the repository, and uses its files as people do: the CLI, the images, the chart and the signatures,
// and a cluster of the lab with the previous release that is upgraded. The tests need the tools of `make test-release`, and root.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/tessera-gpu/tessera/deployments/release/dist"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

const version = "v0.1.0-test.1"

// published is a release that the tests use.
type published struct {
	version  string
	source   string // the clone from which it was made
	folder   string // of the files
	registry string // with the path, on loopback; it serves until the test ends
}

func TestRelease(t *testing.T) {
	content := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(content)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	head := strings.TrimSpace(run(t, root(t), "git", "rev-parse", "HEAD"))
	first, second := newRelease(t, "a", head, version, address), newRelease(t, "another-folder", head, version, address)
	if a, b := first.read(t, dist.SumsFile), second.read(t, dist.SumsFile); !bytes.Equal(a, b) {
		t.Errorf("two clones give other files:\n%s\n%s", a, b)
	}
	t.Run("digests", first.testDigests)
	t.Run("CLI", first.testCLI)
	t.Run("components", first.testComponents)
	t.Run("images", first.testImages)
	t.Run("arm64", first.testARM64)
	t.Run("go install", first.testGoInstall)
	s := newSigner(t)
	first.publish(t, s)
	t.Run("publication", func(t *testing.T) { first.testPublication(t, s) })
	tag, commit := previous(t, head)
	before := newRelease(t, "previous", commit, tag, address)
	before.publish(t, s)
	t.Run("cluster", func(t *testing.T) { testCluster(t, before, first, content) })
}

func root(t *testing.T) string {
	t.Helper()
	folder, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// newRelease makes a release of a commit in a new clone.
func newRelease(t *testing.T, name, commit, version, registry string) published {
	t.Helper()
	r := published{version: version, source: filepath.Join(t.TempDir(), name), registry: registry + "/tessera"}
	r.folder = filepath.Join(r.source, "dist")
	run(t, root(t), "git", "clone", "--quiet", root(t), r.source)
	run(t, r.source, "git", "checkout", "--quiet", "--detach", commit)
	run(t, r.source, "make", "release", "VERSION="+version, "REGISTRY="+r.registry)
	return r
}

// previous returns version and commit of the last release before a commit. Before the first release, that is the commit itself with an older version.
func previous(t *testing.T, commit string) (version, previous string) {
	t.Helper()
	tags := strings.Fields(run(t, root(t), "git", "tag", "--list", "v*", "--merged", commit, "--no-contains", commit, "--sort=-version:refname"))
	if len(tags) == 0 {
		return "v0.1.0-test.0", commit
	}
	return tags[0], tags[0]
}

// testDigests checks that SHA256SUMS has every file but itself.
func (r published) testDigests(t *testing.T) {
	checked := run(t, r.folder, "sha256sum", "--check", "--strict", dist.SumsFile)
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%10d %s", info.Size(), entry.Name())
		if entry.Name() != dist.SumsFile && !strings.Contains(checked, entry.Name()+": OK\n") {
			t.Errorf("%s has no digest", entry.Name())
		}
	}
}

// testCLI checks the archive of each platform and runs the program for this one.
func (r published) testCLI(t *testing.T) {
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		files := untar(t, gunzip(t, r.read(t, "tessera_"+r.version+"_"+platform+".tar.gz")))
		if len(files) != 2 || len(files["LICENSE"]) == 0 || len(files["tessera"]) == 0 {
			t.Errorf("%s has %d files", platform, len(files))
		}
		if platform != "linux_"+runtime.GOARCH {
			continue
		}
		program := filepath.Join(t.TempDir(), "tessera")
		if err := os.WriteFile(program, files["tessera"], 0o755); err != nil {
			t.Fatal(err)
		}
		if got := run(t, ".", program, "version", "--client"); !strings.Contains(got, r.version+" go1.") {
			t.Errorf("the program has the version %q", got)
		}
	}
	for _, platform := range []string{"windows_amd64", "windows_arm64"} {
		content := r.read(t, "tessera_"+r.version+"_"+platform+".zip")
		reader, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, file := range reader.File {
			names = append(names, file.Name)
		}
		if !slices.Equal(names, []string{"LICENSE", "tessera.exe"}) {
			t.Errorf("%s has %v", platform, names)
		}
	}
}

// testComponents checks the list of components of each program.
func (r published) testComponents(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(r.folder, "*.cdx.json"))
	if err != nil || len(files) != 14 {
		t.Fatalf("%d lists, want those of the CLI for 6 platforms and of 4 programs in images for 2: %v", len(files), err)
	}
	for _, file := range files {
		var list struct {
			BOMFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal(r.read(t, filepath.Base(file)), &list); err != nil {
			t.Fatal(err)
		}
		main := list.Metadata.Component
		if list.BOMFormat != "CycloneDX" || main.Name != "github.com/tessera-gpu/tessera" || main.Version != r.version || len(list.Components) < 3 {
			t.Errorf("%s: %s of %+v with %d components", filepath.Base(file), list.BOMFormat, main, len(list.Components))
		}
	}
}

// read returns a file of the release.
func (r published) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// references returns the images and the chart by name, such as node and charts/tessera, with tags and digests.
func (r published) references(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for reference := range strings.FieldsSeq(string(r.read(t, dist.ReferencesFile))) {
		name, _, _ := strings.Cut(strings.TrimPrefix(reference, r.registry+"/"), ":")
		all[name] = reference
	}
	return all
}

// run runs a command in a folder and returns its standard output.
func run(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	return runWith(t, folder, nil, name, args...)
}

// runWith is run with additional variables of the environment.
func runWith(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

func gunzip(t *testing.T, content []byte) io.Reader {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// untar returns the regular files of an archive.
func untar(t *testing.T, content io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
