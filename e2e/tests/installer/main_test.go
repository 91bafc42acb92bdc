package installer

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// shared is an API server with the CRDs of this release, set before the first test.
var shared *plane

// plane is an API server as an administrator sees it.
type plane struct {
	*harness.Plane
	kubectlPath string
}

func TestMain(m *testing.M) { harness.Main(m, furnish) }

// furnish gives the API server the CRDs as the chart does.
func furnish(ctx context.Context, g harness.Ground) error {
	shared = &plane{Plane: g.Plane, kubectlPath: filepath.Join(g.Programs["kubernetes"], "kubectl")}
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	if _, err := shared.kubectl(ctx, nil, "apply", "--server-side", "-f", filepath.Join(source, "deployments", "helm", "tessera", "crds")); err != nil {
		return err
	}
	if _, err := shared.kubectl(ctx, nil, "wait", "--for=condition=Established", "crd", "--all", "--timeout="+harness.Patience.String()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	for _, kind := range []string{"clusterpolicies", "nvidiadrivers", "gpunodes"} { // the API server discovers a kind and its fields a moment later
		if err := harness.Poll(ctx, func(ctx context.Context) error {
			_, err := shared.kubectl(ctx, nil, "explain", kind)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// kubectl runs kubectl and returns its output. The output of a failure is in the error.
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
