package node

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
)

// testCluster is a cluster with a Reconciler of its nodes.
type testCluster struct {
	*controllertest.Cluster
	r *Reconciler
}

// newTestCluster returns a cluster with a ClusterPolicy, these nodes and more objects.
func newTestCluster(t *testing.T, spec v1alpha1.ClusterPolicySpec, nodes []*v1alpha1.GPUNode, more ...client.Object) *testCluster {
	t.Helper()
	c := &testCluster{Cluster: controllertest.NewCluster(t, spec, nodes, more...)}
	c.use(c.Cluster, c.Cluster)
	return c
}

// use replaces the Reconciler by one with these clients.
func (c *testCluster) use(cached, live client.Client) {
	c.Helper()
	c.r = newReconciler(c.T, cached, live, c.Events)
}

func newReconciler(t *testing.T, cached, live client.Client, recorder *events.FakeRecorder) *Reconciler {
	t.Helper()
	metrics, err := report.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cluster := action.Cluster{Client: cached, Live: live, Namespace: controllertest.Namespace}
	recorded := report.Recorder{Events: recorder}
	drainer, pools, obstacles := drain.New(cluster, recorded, metrics), nodestate.NewPools(live), report.NewObstacles()
	return New(Config{
		Cluster: cluster, Catalogs: catalog.NewSource(cached, controllertest.Namespace, render.Images{}), Drainer: drainer, Pools: pools, Obstacles: obstacles,
		Events: recorded, Metrics: metrics,
		Remediator: remediation.New(remediation.Config{
			Cluster: cluster, Drainer: drainer, Pools: pools, Obstacles: obstacles, Events: recorded, Metrics: metrics,
		}),
	})
}

// step reconciles a node once and returns its GPUNode.
func (c *testCluster) step(name string) *v1alpha1.GPUNode {
	c.Helper()
	if _, err := c.r.Reconcile(c.Context(), trigger.Request(name)); err != nil {
		c.Fatal(err)
	}
	return c.GPUNode(name)
}
