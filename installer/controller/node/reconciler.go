// Package node brings each GPU node to what it has been granted. A reconcile reads the node (nodeObservation), decides its phase with installer/phase,
// writes the status, performs the next action, and remediates the node's GPUs. Each action changes an object that is watched, which requests the next
// reconcile; nothing that must survive a restart is kept in memory.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/liveness"
)

// Config has what a Reconciler works with. All fields are required.
type Config struct {
	Cluster    action.Cluster
	Catalogs   *catalog.Source
	Images     render.Images
	Drainer    *drain.Drainer
	Pools      *nodestate.Pools
	Obstacles  *report.Obstacles
	Remediator *remediation.Remediator
	Events     report.Recorder
	Metrics    *report.Metrics
}

// Reconciler reconciles GPUNodes: one reconcile at a time for a node, several nodes concurrently.
type Reconciler struct {
	Config
	work *liveness.Work
}

// New returns a Reconciler.
func New(c Config) *Reconciler {
	return &Reconciler{Config: c, work: &liveness.Work{Name: "the reconciliation of nodes", Limit: trigger.HangLimit}}
}

// Live returns an error if a reconcile hangs.
func (r *Reconciler) Live(request *http.Request) error { return r.work.CheckHTTP(request) }

// Reconcile performs the next step of the node that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	defer r.work.Begin()()
	cat, err := r.Catalogs.Read(ctx)
	unmanaged := errors.Is(err, catalog.ErrNoPolicy)
	if err != nil && !unmanaged {
		return ctrl.Result{}, err
	}
	gpunode := &v1alpha1.GPUNode{}
	switch err := r.Cluster.Client.Get(ctx, request.NamespacedName, gpunode); {
	case apierrors.IsNotFound(err):
		r.removeNode(request.Name)
		if unmanaged {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, r.createFromFeatureLabels(ctx, cat, request.Name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read GPUNode %s: %w", request.Name, err)
	case gpunode.DeletionTimestamp != nil:
		return ctrl.Result{}, nil
	}
	var after time.Duration
	if unmanaged {
		after, err = r.releaseUnmanaged(ctx, gpunode)
	} else {
		after, err = r.reconcileNode(ctx, cat, gpunode)
	}
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("An object was changed since it was read", "node", request.Name, "err", err)
		return ctrl.Result{RequeueAfter: trigger.ConflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// removeNode removes what is kept in memory about a node that is gone.
func (r *Reconciler) removeNode(node string) {
	r.Metrics.RemoveNode(node)
	r.Obstacles.RemoveNode(node)
	r.Remediator.RemoveNode(node)
}

// reconcileNode observes and decides, writes the status, performs the action and remediates GPUs. It returns the time after which to decide again; 0 means
// never.
//
// The status is written before the action, so that it explains an action that fails. GPUs are remediated even if the action fails: the validation of a
// node may fail because its GPUs have faults, and must not keep them from being repaired.
func (r *Reconciler) reconcileNode(ctx context.Context, cat *catalog.Catalog, gpunode *v1alpha1.GPUNode) (time.Duration, error) {
	o, err := r.observe(ctx, cat, gpunode)
	if err != nil {
		return 0, err
	}
	last := r.Obstacles.Of(gpunode.Name)
	o.Obstacle = last.Text
	d := phase.Next(o.Observed)
	d.Message = last.Explain(string(d.Action), o.messageWithExcludedGPUs(d))
	klog.FromContext(ctx).V(2).Info("Decided", "node", gpunode.Name, "phase", d.Phase, "step", d.Step, "reason", d.Reason, "op", d.Action)
	gpus, done, err := r.Remediator.Decide(ctx, cat, &o.Observation, d)
	defer done()
	if err != nil {
		return 0, err
	}
	if err := r.updateGPUNodeStatus(ctx, o, d, gpus); err != nil {
		return 0, err
	}
	err = nodeStep{r, cat, o, d}.perform(ctx)
	if !apierrors.IsConflict(err) {
		r.Obstacles.Set(gpunode.Name, string(d.Action), err)
	}
	after, failed := gpus.RemediateNodeGPUs(ctx)
	if err != nil {
		return 0, errors.Join(err, failed)
	}
	return trigger.Sooner(d.After, after), errors.Join(failed, r.updateNodeMarks(ctx, cat, o, d))
}

// createFromFeatureLabels creates the GPUNode of a node that has an NVIDIA GPU according to the labels of Node Feature Discovery.
func (r *Reconciler) createFromFeatureLabels(ctx context.Context, cat *catalog.Catalog, name string) error {
	node := &corev1.Node{}
	if err := r.Cluster.Client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if cat.Policy.Spec.Discovery.Source == v1alpha1.DiscoverScan || !hasGPUFeatureLabel(node) || !cat.Assign(node).Managed() {
		return nil
	}
	return r.Cluster.CreateGPUNode(ctx, node)
}

// nfdLabels begin the labels of Node Feature Discovery for PCI devices.
const nfdLabels = "feature.node.kubernetes.io/pci-"

// hasGPUFeatureLabel reports whether Node Feature Discovery found an NVIDIA GPU on a node, or a device of NVIDIA that may be one.
func hasGPUFeatureLabel(node *corev1.Node) bool {
	return slices.ContainsFunc([]string{"10de.present", "0302_10de.present", "0300_10de.present"}, func(name string) bool {
		return node.Labels[nfdLabels+name] == "true"
	})
}
