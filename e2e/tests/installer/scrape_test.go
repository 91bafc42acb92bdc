package installer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// TestScrapesNeedTheRight: the installer, with its permissions as shipped, serves metrics over TLS to accounts with the ClusterRole of the chart.
func TestScrapesNeedTheRight(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	program, images := filepath.Join(dir, "tessera-installer"), filepath.Join(dir, "images.yaml")
	if err := harness.Build(t.Context(), program, "./cmd/tessera-installer"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(images, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A port that is held on one loopback address is not assigned on another one.
	port, err := harness.HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	address := fmt.Sprintf("127.0.0.2:%d", port.Number)
	process, err := harness.Start(filepath.Join(dir, "log"), exec.Command(program, "--kubeconfig="+s.kubeconfig(t, s.as(t, "tessera-installer", "node1")),
		"--namespace="+home, "--images="+images, "--metrics-address="+address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := harness.CheckScrapes(ctx, s.plane.Client, address, "metrics"); err != nil {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Errorf("%v\n%s", err, text)
	}
}
