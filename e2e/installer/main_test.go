package installer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/harness"
	"github.com/tessera-gpu/tessera/e2e/lab/binaries"
)

// shared is an API server with the CRDs of this release, set before the first test.
var shared *plane

// plane is an API server as an administrator sees it.
type plane struct {
	*harness.Plane
	kubectlPath string
}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "installer tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "installer")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	programs, err := harness.ClusterPrograms(ctx)
	if err != nil {
		return 0, err
	}
	if shared, err = startPlane(ctx, dir, programs); err != nil {
		return 0, err
	}
	defer shared.Stop()
	return m.Run(), nil
}

// startPlane starts an API server and gives it the CRDs as the chart does.
func startPlane(ctx context.Context, dir string, programs binaries.Folders) (*plane, error) {
	started, err := harness.StartPlane(ctx, dir, programs)
	if err != nil {
		return nil, err
	}
	p := &plane{Plane: started, kubectlPath: filepath.Join(programs["kubernetes"], "kubectl")}
	source, err := binaries.Source()
	if err == nil {
		_, err = p.kubectl(ctx, nil, "apply", "--server-side", "-f", filepath.Join(source, "deployments", "helm", "tessera", "crds"))
	}
	if err == nil {
		_, err = p.kubectl(ctx, nil, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// kubectl runs kubectl and returns what it prints. What it says about a failure is in the error.
func (p *plane) kubectl(ctx context.Context, input []byte, args ...string) (string, error) {
	command := exec.CommandContext(ctx, p.kubectlPath, append([]string{"--kubeconfig", p.Kubeconfig}, args...)...)
	command.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", args[0], err, stderr.String())
	}
	return stdout.String(), nil
}
