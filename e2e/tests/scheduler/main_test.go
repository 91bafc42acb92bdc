package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// world is what all tests share.
type world struct {
	*harness.Plane
	// dir is where logs are.
	dir string
	// informers see what the API server has.
	informers informers.SharedInformerFactory
}

// shared is set before the first test.
var shared world

func TestMain(m *testing.M) {
	metrics.Register()
	if task := os.Getenv(taskVariable); task != "" {
		if err := perform(context.Background(), task); err != nil {
			fmt.Fprintln(os.Stderr, "the task of a test:", err)
			os.Exit(1)
		}
		return
	}
	if version, err := binaries.KubernetesVersion(); err == nil && !lab.RunsOwnScheduler(version) {
		fmt.Printf("all tests are skipped: tessera-scheduler does not run with Kubernetes %s\n", version)
		return
	}
	harness.Main(m, func(ctx context.Context, g harness.Ground) error {
		// The schedulers log many errors that the tests cause.
		klog.SetLogger(klog.Logger{})
		shared = world{Plane: g.Plane, dir: g.Dir, informers: informers.NewSharedInformerFactory(g.Client, 0)}
		return errors.Join(shared.createClasses(ctx), shared.control(ctx))
	})
}

// createClasses creates the DeviceClasses that are shipped.
func (w *world) createClasses(ctx context.Context) error {
	classes, err := fleet.Classes()
	if err != nil {
		return err
	}
	for _, class := range classes {
		if err := create(ctx, class); err != nil {
			return err
		}
	}
	return nil
}

// control runs the controller that gives back the claims of pods that are gone.
func (w *world) control(ctx context.Context) error {
	core, resource := w.informers.Core().V1(), w.informers.Resource().V1()
	c, err := resourceclaim.NewController(klog.FromContext(ctx), w.Client, core.Pods(),
		w.informers.Scheduling().V1beta1().PodGroups(), resource.ResourceClaims(), resource.ResourceClaimTemplates())
	if err != nil {
		return fmt.Errorf("make the controller of claims: %w", err)
	}
	w.informers.Start(ctx.Done())
	w.informers.WaitForCacheSync(ctx.Done())
	go c.Run(ctx, 4)
	return nil
}
