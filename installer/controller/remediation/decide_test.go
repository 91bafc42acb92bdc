package remediation

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// newRemediator returns a Remediator of a cluster.
func newRemediator(t *testing.T, c *controllertest.Cluster) *Remediator {
	t.Helper()
	metrics, err := report.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cluster, recorder := action.Cluster{Client: c, Live: c, Namespace: controllertest.Namespace}, report.Recorder{Events: c.Events}
	return New(Config{
		Cluster: cluster, Drainer: drain.New(cluster, recorder, metrics), Pools: nodestate.NewPools(c), Obstacles: report.NewObstacles(), Events: recorder,
		Metrics: metrics,
	})
}

// decide reads a node and returns what is decided about its GPUs.
func decide(t *testing.T, c *controllertest.Cluster, cat *catalog.Catalog, gpunode *v1alpha1.GPUNode) []gpuRemediation {
	t.Helper()
	r := newRemediator(t, c)
	node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, gpunode)
	if err != nil {
		t.Fatal(err)
	}
	n, done, err := r.Decide(t.Context(), cat, node, phase.Decision{})
	done()
	if err != nil {
		t.Fatal(err)
	}
	return n.gpus
}
