package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/tessera-gpu/tessera/e2e/env/chart"
)

// signer signs releases with a key that exists for one test.
type signer struct {
	cosign, keys string
	offline      []string // the environment in which nothing but loopback is reached
}

func newSigner(t *testing.T) signer {
	t.Helper()
	s := signer{cosign: os.Getenv("COSIGN"), keys: t.TempDir()}
	if s.cosign == "" {
		t.Fatal("COSIGN has not the path of cosign: run make test-release")
	}
	s.offline = []string{"COSIGN_PASSWORD=", "HOME=" + s.keys, "HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=127.0.0.1"}
	runWith(t, s.keys, s.offline, s.cosign, "generate-key-pair")
	return s
}

// publish publishes the release to its registry with signatures.
func (r published) publish(t *testing.T, s signer) {
	t.Helper()
	// Without the paths of caches, go would have none in another home.
	env := append(s.offline, "GOCACHE="+goEnv(t, "GOCACHE"), "GOMODCACHE="+goEnv(t, "GOMODCACHE"), "TESSERA_CACHE="+filepath.Dir(filepath.Dir(s.cosign)))
	runWith(t, r.source, env, "make", "release-publish", "KEY="+filepath.Join(s.keys, "cosign.key"))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", "go", "env", name))
}

// testPublication verifies the signatures and renders the chart from the registry by its digest.
func (r published) testPublication(t *testing.T, s signer) {
	verified := []string{"--key", filepath.Join(s.keys, "cosign.pub"), "--insecure-ignore-tlog"}
	runWith(t, r.folder, s.offline, s.cosign, append([]string{"verify-blob", "--bundle", "SHA256SUMS.bundle", "SHA256SUMS"}, verified...)...)
	references := r.references(t)
	if len(references) != 4 {
		t.Errorf("references %v, want three images and the chart", references)
	}
	for _, reference := range references {
		runWith(t, r.folder, s.offline, s.cosign, append([]string{"verify", reference}, verified...)...)
	}

	helm, err := chart.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := helm.Run(t.Context(), "template", "tessera", r.chart(t), "--plain-http", "--namespace", "tessera-system", "--kube-version", "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"node", "scheduler", "installer"} {
		_, digest, _ := strings.Cut(references[image], "@")
		if want := r.registry + "/" + image + "@" + digest; !strings.Contains(rendered, want) {
			t.Errorf("the chart does not install %s", want)
		}
	}
}

// chart returns the reference of the chart by digest.
func (r published) chart(t *testing.T) string {
	t.Helper()
	_, digest, _ := strings.Cut(r.references(t)["charts/tessera"], "@")
	return "oci://" + r.registry + "/charts/tessera@" + digest
}

// testGoInstall installs the CLI by its version, from a module proxy that has the release. Go refuses a module with replacements there.
func (r published) testGoInstall(t *testing.T) {
	revision := strings.TrimSpace(run(t, r.source, "git", "rev-parse", "HEAD"))
	release := module.Version{Path: "github.com/tessera-gpu/tessera", Version: "v0.1.0-test." + "g" + revision[:12]}
	proxy := t.TempDir()
	at := filepath.Join(proxy, release.Path, "@v", release.Version)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(at + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromVCS(archive, release, r.source, revision, ""); err != nil {
		t.Fatal(err)
	}
	requirements, err := os.ReadFile(filepath.Join(r.source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		at + ".mod": string(requirements), at + ".info": fmt.Sprintf("{%q: %q}", "Version", release.Version), filepath.Join(filepath.Dir(at), "list"): release.Version + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	cache := goEnv(t, "GOMODCACHE")
	t.Cleanup(func() { // the version exists for this test only
		for _, leftover := range []string{filepath.Join(cache, release.String()), filepath.Join(cache, "cache", "download", release.Path, "@v", release.Version)} {
			remove := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `chmod -R u+w "$1"* 2>/dev/null; rm -rf "$1" "$1".*`, "sh", leftover)
			if out, err := remove.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	programs := t.TempDir()
	env := []string{"GOBIN=" + programs, "GOPROXY=file://" + proxy + "," + goEnv(t, "GOPROXY"), "GONOSUMDB=" + release.Path, "GOWORK=off"}
	runWith(t, proxy, env, "go", "install", release.Path+"/cmd/tessera@"+release.Version)
	if got := run(t, proxy, filepath.Join(programs, "tessera"), "version", "--client"); !strings.Contains(got, release.Version+" go1.") {
		t.Errorf("the program has the version %q", got)
	}
}
