package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

var commit = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// newRelease returns a release that writes into a temporary folder.
func newRelease(t *testing.T, registry string) *release {
	t.Helper()
	return &release{
		Options:  Options{Source: "../../..", Out: t.TempDir(), Version: "v1.2.3", Registry: registry, Progress: io.Discard},
		revision: "0123", time: commit,
	}
}

// file returns a file that the release has written.
func (r *release) file(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestOptionsAreValidated(t *testing.T) {
	for version, valid := range map[string]bool{
		"v1.2.3": true, "v1.2.3-rc.1": true, "1.2.3": false, "v1.2": false, "v1.2.3+build": false, "": false, "v01.2.3": false,
	} {
		if err := (Options{Version: version, Registry: "registry.example.com/tessera"}).validate(); (err == nil) != valid {
			t.Errorf("version %q: %v", version, err)
		}
	}
	if err := (Options{Version: "v1.2.3"}).validate(); err == nil {
		t.Error("a release without a registry is accepted")
	}
}

// A release is made from a commit, into an empty folder.
func TestReleaseNeedsACommit(t *testing.T) {
	source := t.TempDir()
	for _, args := range [][]string{
		{"init", "--quiet"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--message=a", "--date=2026-11-28T12:00:00Z"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", source}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-11-28T12:00:00Z")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git: %v\n%s", err, output)
		}
	}
	r := &release{Options: Options{Source: source}}
	if err := r.readCommit(t.Context()); err != nil || !r.time.Equal(commit) || len(r.revision) != 40 {
		t.Errorf("commit %q at %s: %v", r.revision, r.time, err)
	}
	if err := os.WriteFile(filepath.Join(source, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.readCommit(t.Context()); !errors.Is(err, errChanged) || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("with a file that is in no commit: %v", err)
	}
	if err := makeEmpty(source); err == nil {
		t.Error("a folder with files is accepted")
	}
}

// Archives have the files with their modes, the owner root and one time; equal files give equal bytes.
func TestArchives(t *testing.T) {
	files := []entry{{name: "LICENSE", content: []byte("license")}, {name: "tessera", content: []byte("program"), executable: true}}
	type listed struct {
		Name, Content string
		Executable    bool
		Time          time.Time
	}
	want := []listed{{"LICENSE", "license", false, commit}, {"tessera", "program", true, commit}}

	packed, err := tarGz(files, commit)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tarGz(files, commit); err != nil || !bytes.Equal(packed, again) {
		t.Errorf("equal files give other bytes: %v", err)
	}
	decompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var got []listed
	for reader := tar.NewReader(decompressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s: owner %d:%d, %v", header.Name, header.Uid, header.Gid, err)
		}
		got = append(got, listed{header.Name, string(content), header.Mode&0o111 != 0, header.ModTime.UTC()})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tar (-want +got):\n%s", diff)
	}

	if packed, err = zipped(files, commit); err != nil {
		t.Fatal(err)
	}
	if again, err := zipped(files, commit); err != nil || !bytes.Equal(packed, again) {
		t.Errorf("equal files give other bytes: %v", err)
	}
	reader, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, file := range reader.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, listed{file.Name, string(content), file.Mode()&0o111 != 0, file.Modified.UTC()})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("zip (-want +got):\n%s", diff)
	}
}

// krew's manifest and SHA256SUMS have the digests of the files.
func TestDigestsAreOfTheFiles(t *testing.T) {
	r := newRelease(t, "registry.example.com/tessera")
	archives := []cliArchive{{platform{"linux", "amd64"}, "a.tar.gz"}, {platform{"windows", "arm64"}, "b.zip"}}
	for _, archive := range archives {
		if err := r.write(archive.file, []byte(archive.file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.writeKrew(archives), r.writeSums()); err != nil {
		t.Fatal(err)
	}
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(r.file(t, KrewFile), &plugin); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "-")
	check.Dir = r.Out
	check.Stdin = bytes.NewReader(r.file(t, SumsFile))
	if output, err := check.CombinedOutput(); err != nil || strings.Count(string(output), ": OK\n") != 3 {
		t.Errorf("sha256sum: %v\n%s", err, output)
	}
	for i, p := range plugin.Spec.Platforms {
		line := p.SHA256 + "  " + archives[i].file + "\n"
		if !strings.Contains(string(r.file(t, SumsFile)), line) || !strings.HasSuffix(p.URI, "/v1.2.3/"+archives[i].file) {
			t.Errorf("krew's manifest has %+v, and not %s", p, line)
		}
	}
	if p := plugin.Spec.Platforms[1]; p.Bin != "tessera.exe" || p.Selector.MatchLabels["os"] != "windows" || p.Selector.MatchLabels["arch"] != "arm64" {
		t.Errorf("platform %+v", p)
	}
}

// The packed chart has the version of the release and the digests of its images.
func TestChartHasTheReleasesImages(t *testing.T) {
	r := newRelease(t, "registry.example.com/tessera")
	digest := "sha256:" + strings.Repeat("a", 64)
	built := images{
		{component: "node", repository: r.Registry + "/node", digest: digest}, {component: "installer", repository: r.Registry + "/installer", digest: digest},
		{component: "scheduler", repository: r.Registry + "/scheduler", digest: digest, kubernetes: "1.37"},
	}
	reference, err := r.writeChart(built)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(reference, "registry.example.com/tessera/charts/tessera:1.2.3@sha256:") {
		t.Errorf("reference %s", reference)
	}
	packed := r.file(t, "tessera-1.2.3.tgz")
	var chart struct{ Version, AppVersion string }
	var values struct {
		Images struct {
			Tag             string
			Architectures   []string
			Node, Installer struct{ Repository, Digest string }
			Scheduler       struct {
				Repository string
				Kubernetes map[string]struct{ Digest string }
			}
		}
	}
	for name, into := range map[string]any{"tessera/Chart.yaml": &chart, "tessera/values.yaml": &values} {
		text, err := fileOf(packed, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	i := values.Images
	if chart.Version != "1.2.3" || chart.AppVersion != "v1.2.3" || i.Tag != "v1.2.3" || !cmp.Equal(i.Architectures, architectures) {
		t.Errorf("chart %+v, images %+v", chart, i)
	}
	for component, got := range map[string]string{
		"node": i.Node.Repository + "@" + i.Node.Digest, "installer": i.Installer.Repository + "@" + i.Installer.Digest,
		"scheduler": i.Scheduler.Repository + "@" + i.Scheduler.Kubernetes["1.37"].Digest,
	} {
		if want := r.Registry + "/" + component + "@" + digest; got != want {
			t.Errorf("%s: %s, want %s", component, got, want)
		}
	}
	if _, err := replaceOnce([]byte("a a"), [][2]string{{"a", "b"}}); err == nil {
		t.Error("a text that occurs twice is replaced")
	}
}

// What is published has the digests of the release: an index with both architectures, and the chart.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	r := newRelease(t, strings.TrimPrefix(server.URL, "http://")+"/tessera")
	var recipes []oci.Image
	for _, architecture := range architectures {
		recipes = append(recipes, oci.Image{
			Architecture: architecture, Layers: [][]oci.File{{{Path: "/a", Content: []byte(architecture)}}}, Created: commit,
			Labels: map[string]string{oci.LabelPrefix + "title": "tessera-node", "tessera.dev/libc": "2.36"},
		})
	}
	index, err := oci.NewIndex(recipes...)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	node := r.Registry + "/node:v1.2.3"
	if err := oci.WriteIndexes(filepath.Join(r.Out, imagesFile(r.Version)), map[string]v1.ImageIndex{node: index}); err != nil {
		t.Fatal(err)
	}
	built := images{{component: "node", repository: r.Registry + "/node", tag: "v1.2.3", digest: digest.String()}}
	chart, err := r.writeChart(built)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.writeReferences(append(built.references(), chart)); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := Publish(t.Context(), r.Out, &printed); err != nil {
		t.Fatal(err)
	}
	if want := chart + "\n" + node + "@" + digest.String() + "\n"; printed.String() != want {
		t.Errorf("published %q, want %q", printed.String(), want)
	}
	for reference := range strings.FieldsSeq(printed.String()) {
		_, byDigest, _ := strings.Cut(reference, "@")
		parsed, err := name.ParseReference(strings.Split(reference, ":")[0] + ":" + strings.Split(reference, ":")[1] + "@" + byDigest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Get(parsed, remote.WithContext(t.Context())); err != nil {
			t.Error(err)
		}
	}
	pulled, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(pulled.Manifests) != 2 || pulled.Manifests[1].Platform.Architecture != "arm64" || pulled.Annotations[oci.LabelPrefix+"title"] != "tessera-node" || len(pulled.Annotations) != 1 {
		t.Errorf("index %+v", pulled)
	}
	wrong := strings.Replace(node+"@"+digest.String(), "sha256:", "sha256:00", 1)
	if err := os.WriteFile(filepath.Join(r.Out, ReferencesFile), []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Publish(t.Context(), r.Out, io.Discard); !errors.Is(err, errOther) {
		t.Errorf("a reference with another digest: %v", err)
	}
}
