package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// policyReconciler makes the objects of the cluster, grants drivers to nodes when their turn has come, and says where the cluster stands. There is
// one of it, and it works on everything at once, from caches.
type policyReconciler struct {
	action.Cluster
	images   render.Images
	schema   *crdSchemas
	recorder recorder.EventRecorder
	metrics  *Metrics
	// monitors is whether the cluster serves ServiceMonitors.
	monitors bool
	// admitted is whether the namespace has the label for admin access, as far as it is known: it is looked at again after a failure.
	admitted bool
}

// pass is what one reconciliation of the policy finds and does.
type pass struct {
	*Catalog
	now     time.Time
	members []member
	objects []client.Object
	// placed are the labels of drivers that nodes have, those without a GPUNode among them.
	placed map[string]bool
	// faults are what keeps the cluster from being as the policy wants, for people.
	faults []fault
}

// fault is a reason and what to do about it.
type fault struct{ reason, message string }

// member is a GPU node with what policies say of it. Its objects belong to the cache.
type member struct {
	gpunode    *v1alpha1.GPUNode
	node       *corev1.Node
	assignment Assignment
	// wanted is the driver that it is to have; nil where nothing is known or nothing is wanted.
	wanted *v1alpha1.DesiredDriver
	pods   int32
}

// Reconcile performs one pass.
func (r *policyReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	cat, err := readCatalog(ctx, r.Client, r.Namespace, r.images)
	if errors.Is(err, ErrNoPolicy) {
		klog.FromContext(ctx).V(2).Info("Nothing is changed", "reason", err.Error())
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	p := &pass{Catalog: cat, now: time.Now()}
	if err := r.readMembers(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	recheck := r.schema.check(ctx, r.Live, p)
	failed := r.deploy(ctx, p)
	if failed != nil {
		p.faults = append(p.faults, fault{"ObjectsNotWritten", failed.Error()})
	}
	after, err := r.grantRollouts(ctx, p)
	failed = errors.Join(failed, err)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: Sooner(after, recheck)}, failed
}

// Sooner is the earlier of two times to look again; zero is never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// readMembers reads the nodes and what policies say of them.
func (r *policyReconciler) readMembers(ctx context.Context, p *pass) error {
	gpunodes, nodes := &v1alpha1.GPUNodeList{}, &corev1.NodeList{}
	if err := errors.Join(r.Client.List(ctx, gpunodes, client.UnsafeDisableDeepCopy), r.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	p.placed = map[string]bool{}
	byName := make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		node := &nodes.Items[i]
		byName[node.Name] = node
		p.placed[node.Labels[v1alpha1.LabelDriver]] = true
		if pool := node.Labels[v1alpha1.LabelAgent]; pool != "" {
			p.input.Agents = append(p.input.Agents, pool)
		}
	}
	slices.Sort(p.input.Agents)
	p.input.Agents = slices.Compact(p.input.Agents)
	p.input.ServiceMonitors = r.monitors
	slices.SortFunc(gpunodes.Items, func(a, b v1alpha1.GPUNode) int { return strings.Compare(a.Name, b.Name) })
	for i := range gpunodes.Items {
		gpunode := &gpunodes.Items[i]
		if node := byName[gpunode.Name]; node != nil {
			p.members = append(p.members, member{gpunode: gpunode, node: node, assignment: p.Assign(node).WithHardware(gpunode.Status.Hardware)})
		}
	}
	return r.assignDrivers(ctx, p)
}

// assignDrivers asks which driver each node is to have, and how many pods a change would cost.
func (r *policyReconciler) assignDrivers(ctx context.Context, p *pass) error {
	named := map[string]bool{}
	for i := range p.members {
		m := &p.members[i]
		found, ok := p.DriverFor(m.assignment, m.gpunode.Status.Hardware)
		switch {
		case !m.assignment.Managed() || m.assignment.Conflict != "":
			continue
		case ok && found.Err == nil:
			m.wanted = &found.Desired
		case ok:
			if text := found.Err.Error(); !named[text] {
				named[text] = true
				p.faults = append(p.faults, fault{"DriverUnknown", text})
			}
		}
		if _, changes := m.change(); !changes {
			continue
		}
		users, err := PoolUsers(ctx, r.Cluster, m.node.Name+"-"+m.assignment.DRADriver)
		if err != nil {
			return err
		}
		m.pods = int32(len(users.Pods)) //nolint:gosec // a node has thousands at most
	}
	return nil
}

// current is the digest that the node has been granted.
func (m member) current() string {
	if d := m.gpunode.Spec.Driver; d != nil {
		return d.Digest
	}
	return ""
}

// change returns the digest that the node is to have, and whether it must change for it or for its MIG mode.
func (m member) change() (wanted string, changes bool) {
	wanted = m.current()
	if m.wanted != nil {
		wanted = m.wanted.Digest
	}
	return wanted, wanted != m.current() || m.modeChanges()
}

// modeChanges reports whether another MIG mode is wanted than has been granted.
func (m member) modeChanges() bool {
	return m.assignment.MIGMode != "" && m.assignment.MIGMode != m.gpunode.Spec.MIGMode
}

// modeChanging reports whether the node has been granted a MIG mode that its GPUs do not have yet.
func (m member) modeChanging() bool {
	return m.gpunode.Spec.MIGMode.Differs(m.gpunode.Status.Agent)
}

// deploy writes the objects of the cluster and removes those that nobody wants any more.
func (r *policyReconciler) deploy(ctx context.Context, p *pass) error {
	p.input.Drivers = p.driverSets()
	var err error
	if p.objects, err = render.Objects(p.input); err != nil {
		return err
	}
	if !r.admitted {
		if err := r.AllowAdminAccess(ctx); err != nil {
			return err
		}
	}
	written, failed := r.ApplyObjects(ctx, p.objects, isDriver)
	r.admitted = failed == nil
	logger := klog.FromContext(ctx)
	if len(written) > 0 {
		logger.Info("Wrote objects", "objects", written)
	}
	if failed != nil || !r.schema.complete() {
		return failed
	}
	removed, failed := r.PruneObjects(ctx, r.prunedKinds(), p.keepsObject())
	if len(removed) > 0 {
		logger.Info("Removed objects", "objects", removed)
	}
	return failed
}

// driverSets are the drivers that nodes are to have, each once.
func (p *pass) driverSets() []render.DriverSet {
	var sets []RenderedDriver
	for _, found := range p.known {
		if found.Err == nil {
			sets = append(sets, found)
		}
	}
	slices.SortFunc(sets, func(a, b RenderedDriver) int {
		return strings.Compare(a.Desired.Digest+a.Set.Owner+a.Set.Host.Kernel, b.Desired.Digest+b.Set.Owner+b.Set.Host.Kernel)
	})
	var list []render.DriverSet
	for _, s := range sets {
		list = append(list, s.Set)
	}
	return list
}

// prunedKinds are the kinds of objects that the installer makes for the cluster.
func (r *policyReconciler) prunedKinds() []client.ObjectList {
	kinds := []client.ObjectList{
		&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &resourceapi.ResourceClaimTemplateList{},
		&policyv1.PodDisruptionBudgetList{}, &nodev1.RuntimeClassList{}, &resourceapi.DeviceTaintRuleList{},
	}
	if r.monitors {
		monitors := &unstructured.UnstructuredList{}
		monitors.SetGroupVersionKind(monitorKind.GroupVersion().WithKind("ServiceMonitorList"))
		kinds = append(kinds, monitors)
	}
	return kinds
}

// isDriver reports whether an object is the DaemonSet of a driver, which is named by its digest and never changes.
func isDriver(object client.Object) bool {
	_, is := object.(*appsv1.DaemonSet)
	return is && render.IsDriver(object.GetLabels()[render.LabelName])
}

// keepsObject returns what tells objects that stay: those that were rendered, and the drivers that nodes have, have been granted or can return to.
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
