package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/render"
)

// deploy renders the objects of the cluster, writes those that differ, makes the ClusterPolicy the owner of all, and deletes those that are not needed any
// more. Nothing is deleted after an error, and while the CRDs of the cluster may lack fields: a field that is missing could mean that an object is not
// wanted.
func (r *Reconciler) deploy(ctx context.Context, p *pass) error {
	p.input.Drivers = p.driverSets()
	p.chooseRuntimeHandler()
	p.reportArchitectures()
	var err error
	if p.input.SchedulerAvailable, err = r.schedulerAvailable(ctx); err != nil {
		return err
	}
	if p.objects, err = render.Objects(p.input); err != nil {
		return err
	}
	action.OwnObjects(p.Policy, p.objects)
	if !r.admitted {
		if err := r.Cluster.AllowAdminAccess(ctx); err != nil {
			return err
		}
	}
	written, failed := r.Cluster.ApplyObjects(ctx, p.objects, isDriver)
	r.admitted = failed == nil
	logger := klog.FromContext(ctx)
	if len(written) > 0 {
		logger.Info("Wrote objects", "objects", written)
	}
	adopted, err := r.Cluster.AdoptObjects(ctx, r.prunedKinds(), p.Policy)
	if len(adopted) > 0 {
		logger.Info("Wrote the owner of objects", "objects", adopted)
	}
	if failed = errors.Join(failed, err); failed != nil || !r.schema.complete() {
		return failed
	}
	removed, failed := r.Cluster.PruneObjects(ctx, r.prunedKinds(), p.keepsObject())
	if len(removed) > 0 {
		logger.Info("Removed objects", "objects", removed)
	}
	return failed
}

// schedulerAvailable reports whether a pod of the deployed scheduler is available.
func (r *Reconciler) schedulerAvailable(ctx context.Context) (bool, error) {
	deployment := &appsv1.Deployment{}
	err := r.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: r.Cluster.Namespace, Name: render.OperandScheduler}, deployment)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Deployment %s: %w", render.OperandScheduler, err)
	}
	return err == nil && deployment.Status.AvailableReplicas > 0, nil
}

// driverSets returns the drivers that nodes are to have, each once, in a stable order.
func (p *pass) driverSets() []render.DriverSet {
	sets := slices.DeleteFunc(slices.Collect(maps.Values(p.drivers)), func(d catalog.RenderedDriver) bool { return d.Err != nil })
	order := func(d catalog.RenderedDriver) string { return d.Desired.Digest + d.Key.Owner + d.Key.Host.Kernel }
	slices.SortFunc(sets, func(a, b catalog.RenderedDriver) int { return strings.Compare(order(a), order(b)) })
	var list []render.DriverSet
	for _, s := range sets {
		list = append(list, s.Set)
	}
	return list
}

// prunedKinds returns empty lists of the kinds of objects that the installer creates for the cluster.
func (r *Reconciler) prunedKinds() []client.ObjectList {
	kinds := []client.ObjectList{
		&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &resourceapi.ResourceClaimTemplateList{},
		&policyv1.PodDisruptionBudgetList{}, &nodev1.RuntimeClassList{},
		&admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
	}
	if !r.Cluster.SliceTaints {
		kinds = append(kinds, &resourceapi.DeviceTaintRuleList{})
	}
	if r.ServiceMonitors {
		monitors := &unstructured.UnstructuredList{}
		monitors.SetGroupVersionKind(MonitorKind.GroupVersion().WithKind(MonitorKind.Kind + "List"))
		kinds = append(kinds, monitors)
	}
	return kinds
}

// isDriver reports whether an object is the DaemonSet of a driver, which is named by its digest and never changes.
func isDriver(object client.Object) bool {
	_, is := object.(*appsv1.DaemonSet)
	return is && render.IsDriver(object.GetLabels()[render.LabelName])
}

// keepsObject returns a function that reports the objects to keep: those that were rendered, those of single nodes, and the drivers that nodes run, have
// been granted or can return to.
func (p *pass) keepsObject() func(client.Object) bool {
	wanted, drivers := map[string]bool{}, maps.Clone(p.placed)
	key := func(object client.Object) string { return fmt.Sprintf("%T/%s", object, object.GetName()) }
	for _, object := range p.objects {
		wanted[key(object)] = true
	}
	for _, m := range p.members {
		for _, d := range []*v1alpha1.DesiredDriver{m.gpunode.Spec.Driver, m.gpunode.Status.LastGoodDriver} {
			if d != nil {
				drivers[v1alpha1.DriverLabelValue(d.Digest)] = true
			}
		}
	}
	return func(object client.Object) bool {
		if wanted[key(object)] || object.GetLabels()[action.LabelNode] != "" {
			return true
		}
		if set, ok := object.(*appsv1.DaemonSet); ok && isDriver(object) {
			return drivers[set.Spec.Template.Spec.NodeSelector[v1alpha1.LabelDriver]]
		}
		return false
	}
}
