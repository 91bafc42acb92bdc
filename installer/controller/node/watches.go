package node

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
)

const (
	// workers is the number of nodes that are reconciled concurrently.
	workers = 8
	// firstRetry and lastRetry are the bounds of the backoff after an error. The upper one is short enough that a removed obstacle is noticed soon.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// SetUp registers the reconciler with its watches: everything that the phase of a node depends on.
func (r *Reconciler) SetUp(mgr ctrl.Manager) error {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	b := builder.ControllerManagedBy(mgr).Named("node").WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retries}).
		For(&v1alpha1.GPUNode{}).
		Watches(&v1alpha1.GPUNode{}, requests(r.nodesWaitingForBudget), builder.WithPredicates(remediation.BudgetChanged())).
		Watches(&corev1.Node{}, requests(sameName), builder.WithPredicates(trigger.Changed())).
		Watches(&corev1.Pod{}, requests(nodesOfPod), builder.WithPredicates(trigger.Changed())).
		Watches(&resourceapi.ResourceClaim{}, requests(r.nodesOfClaim), builder.WithPredicates(trigger.Changed())).
		Watches(&v1alpha1.ClusterPolicy{}, requests(r.allNodes), builder.WithPredicates(trigger.Decided())).
		Watches(&v1alpha1.NVIDIADriver{}, requests(r.allNodes), builder.WithPredicates(trigger.Decided())).
		Watches(&corev1.ConfigMap{}, requests(r.allNodes), builder.WithPredicates(trigger.ContentsChanged(), r.referenced())).
		Watches(&corev1.Secret{}, requests(r.allNodes), builder.WithPredicates(trigger.ContentsChanged(), r.referenced()))
	if !r.Cluster.SliceTaints {
		b = b.Watches(&resourceapi.DeviceTaintRule{}, requests(nodeOfObject), builder.WithPredicates(trigger.Changed()))
	}
	return b.Complete(r)
}

// requests returns a handler that requests a reconcile of each node that names returns for an object.
func requests(names func(context.Context, client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var all []reconcile.Request
		for _, name := range names(ctx, o) {
			all = append(all, trigger.Request(name))
		}
		return all
	})
}

func sameName(_ context.Context, o client.Object) []string { return []string{o.GetName()} }

// nodeOfObject returns the node that an object of the installer was created for.
func nodeOfObject(_ context.Context, o client.Object) []string {
	if name := action.NodeOf(o); name != "" {
		return []string{name}
	}
	return nil
}

// nodesOfPod returns the node that a pod was created for, also before it is scheduled, or else the one that it is on.
func nodesOfPod(ctx context.Context, o client.Object) []string {
	if names := nodeOfObject(ctx, o); len(names) > 0 {
		return names
	}
	return informers.PodNodes(o)
}

// nodesOfClaim returns the nodes of a claim's devices for which the users of GPUs matter: those that are not Ready and those with a remediation. A claim of
// a validation is returned for its node.
func (r *Reconciler) nodesOfClaim(ctx context.Context, o client.Object) []string {
	if names := nodeOfObject(ctx, o); len(names) > 0 {
		return names
	}
	return slices.DeleteFunc(informers.ClaimNodes(o), func(name string) bool {
		node := &v1alpha1.GPUNode{}
		err := r.Cluster.Client.Get(ctx, types.NamespacedName{Name: name}, node)
		return err != nil || node.Status.Phase == v1alpha1.PhaseReady && len(node.Status.Remediations) == 0
	})
}

// allNodes returns every GPU node.
func (r *Reconciler) allNodes(ctx context.Context, _ client.Object) []string {
	return r.nodesWhere(ctx, func(*v1alpha1.GPUNode) bool { return true })
}

// nodesWaitingForBudget returns the nodes with a GPU that waits for a place in the remediation budget.
func (r *Reconciler) nodesWaitingForBudget(ctx context.Context, _ client.Object) []string {
	return r.nodesWhere(ctx, remediation.WaitsForBudget)
}

func (r *Reconciler) nodesWhere(ctx context.Context, is func(*v1alpha1.GPUNode) bool) []string {
	list := &v1alpha1.GPUNodeList{}
	if err := r.Cluster.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "List GPUNodes")
		return nil
	}
	var names []string
	for i := range list.Items {
		if is(&list.Items[i]) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// referenced passes ConfigMaps and Secrets that a policy references.
func (r *Reconciler) referenced() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		cat, err := r.Catalogs.Read(context.Background())
		if err != nil {
			return false
		}
		kind := "ConfigMap"
		if _, is := o.(*corev1.Secret); is {
			kind = "Secret"
		}
		return cat.References(kind, o.GetName())
	})
}
