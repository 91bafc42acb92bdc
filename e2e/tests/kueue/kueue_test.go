// Package kueue runs Kueue in a lab and follows docs/tasks/kueue.md: two teams with quota in GPUs, MIG devices and memory, borrowing and preemption. Kueue is the
// program of its module with its own chart. Root is required.
package kueue

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/kueue"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/pages"
)

const page = "docs/tasks/kueue.md"

func TestQuotaForTwoTeams(t *testing.T) {
	if err := harness.CheckRoot(); err != nil {
		t.Skip(err)
	}
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, page))
	if err != nil {
		t.Fatal(err)
	}
	k, err := kueue.New(t.Context(), t.TempDir(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t)
	if err := c.LoadImage(t.Context(), k.Image); err != nil {
		t.Fatal(err)
	}
	shell, err := c.NewShell(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shell.Dir = t.TempDir()
	if err := pages.WriteFiles(shell.Dir, string(text)); err != nil {
		t.Fatal(err)
	}
	published := "oci://registry.k8s.io/kueue/charts/kueue --version " + k.Version
	if strings.Count(string(text), published) != 1 {
		t.Fatalf("%s does not install %s", page, published)
	}
	// The chart in the module has the images of a branch, the published one those of the release.
	ours := k.Chart + " --set controllerManager.manager.image.repository=" + k.Repository + ",controllerManager.manager.image.tag=v" + k.Version +
		",controllerManager.manager.image.pullPolicy=IfNotPresent"
	for _, step := range pages.Steps(strings.Replace(string(text), published, ours, 1)) {
		t.Log("$ ", step.Line)
		out, err := step.Run(t.Context(), shell)
		t.Log(out)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a lab with Tessera, until the end of the test.
func start(t *testing.T) *cluster.Cluster {
	t.Helper()
	folder := filepath.Join(lab.Base, "kueue")
	if err := lab.Down(t.Context(), folder); err != nil {
		t.Fatal("remove the lab of an earlier run: ", err)
	}
	if os.Getenv("TESSERA_KEEP_LAB") == "" {
		t.Cleanup(func() {
			if err := lab.Down(context.WithoutCancel(t.Context()), folder); err != nil {
				t.Error(err)
			}
		})
	}
	c, err := cluster.Up(t.Context(), cluster.Config{Folder: folder, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
