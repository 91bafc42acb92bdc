package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/prometheus"
)

// world has the programs and the API server that all tests share.
type world struct {
	plane      *harness.Plane
	client     kubernetes.Interface
	kubeconfig string
	// product is the agent as shipped. agent is the same, with the race detector if the tests use it. crashing has
	// crash points in addition. hook is the CDI hook.
	product, agent, crashing, hook string
	// promql builds Prometheus' engine for tests, once, and returns its path.
	promql func() (string, error)
}

// shared is set before the first test.
var shared world

func TestMain(m *testing.M) {
	if err := harness.CheckRoot(); err != nil {
		fmt.Println("skipped:", err)
		return
	}
	harness.Main(m, func(ctx context.Context, g harness.Ground) error {
		shared = world{plane: g.Plane, client: g.Client, kubeconfig: g.Kubeconfig}
		return shared.build(ctx, g.Dir)
	})
}

// build builds the programs from the current source.
func (w *world) build(ctx context.Context, dir string) error {
	var err error
	w.promql = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "promql")
		return path, prometheus.Build(ctx, path)
	})
	build := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		err = errors.Join(err, harness.Build(ctx, path, args...))
		return path
	}
	w.product = build("tessera-node", "-tags=grpcnotrace", "./cmd/tessera-node")
	w.crashing = build("tessera-node-crashing", "-tags=grpcnotrace,crashtest", "./cmd/tessera-node")
	w.hook = build("tessera-hook", "./cmd/tessera-hook")
	w.agent = w.product
	if raced {
		w.agent = build("tessera-node-raced", "-race", "-tags=grpcnotrace", "./cmd/tessera-node")
	}
	if err != nil {
		return err
	}
	return harness.BuildDriver(ctx)
}
