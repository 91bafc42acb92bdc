// Package policy reconciles the ClusterPolicy and the NVIDIADrivers: it writes the objects of the cluster, grants drivers and MIG modes to nodes according
// to the rollouts, and writes the statuses of the policies.
package policy

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/liveness"
)

// MonitorKind is the kind ServiceMonitor of the Prometheus Operator.
var MonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// Config has what a Reconciler works with. Cluster, Catalogs, Events and Metrics are required.
type Config struct {
	Cluster  action.Cluster
	Catalogs *catalog.Source
	Events   report.Recorder
	Metrics  *report.Metrics
	// Schemas are the hashes of the release's CRDs by their names; nil: they are not compared with those of the cluster.
	Schemas map[string]string
	// Lacks returns the fields of the release that a CRD with another hash does not have; nil: such a CRD counts as lacking some.
	Lacks func(*unstructured.Unstructured) ([]string, error)
	// ServiceMonitors is whether the cluster serves MonitorKind.
	ServiceMonitors bool
	// Reduced is what is reduced in this cluster, for the condition Reduced; empty: nothing.
	Reduced string
}

// Reconciler reconciles all policies in one pass. There is one pass at a time.
type Reconciler struct {
	Config
	schema *crdSchemas
	work   *liveness.Work
	// admitted is whether the namespace was labeled for admin access since the last failure.
	admitted bool
}

// New returns a Reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, schema: &crdSchemas{released: c.Schemas, lacks: c.Lacks}, work: &liveness.Work{Name: "the reconciliation of the policy", Limit: trigger.HangLimit}}
}

// Live returns an error if a reconcile hangs.
func (r *Reconciler) Live(request *http.Request) error { return r.work.CheckHTTP(request) }

// pass is what one reconcile reads, decides and reports.
type pass struct {
	*catalog.Catalog
	now     time.Time
	members []member
	// drivers are the drivers that members are to have, or the errors that prevent them.
	drivers map[catalog.DriverKey]catalog.RenderedDriver
	// input is what the objects are rendered from.
	input   render.Input
	objects []client.Object
	// placed has the values of the driver label on all nodes, also on those without a GPUNode.
	placed map[string]bool
	// faults are reported in the condition Degraded.
	faults []fault
}

// newPass returns a pass in which nothing has been read but the policies.
func newPass(c *catalog.Catalog) *pass {
	return &pass{Catalog: c, now: time.Now(), drivers: map[catalog.DriverKey]catalog.RenderedDriver{}, input: c.Input(), placed: map[string]bool{}}
}

// fault is the reason and the message of a condition.
type fault struct{ reason, message string }

// Reconcile performs one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	defer r.work.Begin()()
	cat, err := r.Catalogs.Read(ctx)
	if errors.Is(err, catalog.ErrNoPolicy) {
		klog.FromContext(ctx).V(2).Info("No change is made", "reason", err.Error())
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	p := newPass(cat)
	if err := r.readMembers(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	recheck := r.schema.check(ctx, r.Cluster.Live, p)
	failed := r.deploy(ctx, p)
	if failed != nil {
		p.faults = append(p.faults, fault{"ObjectsNotWritten", failed.Error()})
	}
	after, err := r.grantRollouts(ctx, p)
	failed = errors.Join(failed, err)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: trigger.ConflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: trigger.Sooner(after, recheck)}, failed
}
