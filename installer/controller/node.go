package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// nodeReconciler brings one node to what it has been granted: it observes, asks what is next, says so and does it. One at a time for a node,
// several nodes at once.
type nodeReconciler struct {
	action.Cluster
	images    render.Images
	drainer   drainer
	obstacles *Obstacles
	recorder  recorder.EventRecorder
	metrics   *Metrics
	pools     *Pools
	// budget is held while GPUs are taken out of service, so that nobody else counts at the same time.
	budget sync.Mutex
	taken  pendingOrders
}

// ConflictDelay is after what time a write is tried again that somebody else's write came before.
const ConflictDelay = 200 * time.Millisecond

// Reconcile performs one step of the node that the request names. What it does is seen and brings the next one.
func (r *nodeReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cat, err := readCatalog(ctx, r.Client, r.Namespace, r.images)
	abandoned := errors.Is(err, ErrNoPolicy)
	if err != nil && !abandoned {
		return ctrl.Result{}, err
	}
	gpunode := &v1alpha1.GPUNode{}
	switch err := r.Client.Get(ctx, request.NamespacedName, gpunode); {
	case apierrors.IsNotFound(err):
		r.metrics.ForgetNode(request.Name)
		r.obstacles.ForgetNode(request.Name)
		r.taken.forget(request.Name)
		r.pools.set(request.Name, publication{})
		if abandoned {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, r.createFromFeatureLabels(ctx, cat, request.Name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read GPUNode %s: %w", request.Name, err)
	case gpunode.DeletionTimestamp != nil:
		return ctrl.Result{}, nil
	}
	work := r.reconcileNode
	if abandoned {
		cat, work = WithoutPolicy(), r.releaseUnmanaged
	}
	after, err := work(ctx, cat, gpunode)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Somebody else wrote first", "node", request.Name, "err", err)
		return ctrl.Result{RequeueAfter: ConflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// reconcileNode observes, decides, says and does.
func (r *nodeReconciler) reconcileNode(ctx context.Context, cat *Catalog, gpunode *v1alpha1.GPUNode) (time.Duration, error) {
	s, err := r.observe(ctx, cat, gpunode)
	if err != nil {
		return 0, err
	}
	met := r.obstacles.Of(gpunode.Name)
	s.Obstacle = met.Text
	d := phase.Next(s.Observed)
	d.Message = met.Explain(string(d.Action), s.messageWithExcludedGPUs(d))
	klog.FromContext(ctx).V(2).Info("Decided", "node", gpunode.Name, "phase", d.Phase, "step", d.Step, "reason", d.Reason, "op", d.Action)
	if len(s.faultyGPUs()) > 0 {
		r.budget.Lock()
		defer r.budget.Unlock()
	}
	r.taken.forget(gpunode.Name)
	if err := r.examine(ctx, cat, s, d); err != nil {
		return 0, err
	}
	if err := r.updateGPUNodeStatus(ctx, s, d); err != nil {
		return 0, err
	}
	err = nodeStep{r, cat, s, d}.perform(ctx)
	if !apierrors.IsConflict(err) {
		r.obstacles.Set(gpunode.Name, string(d.Action), err)
	}
	// A node that is not proven because GPUs of it are sick must not wait for what brings them back.
	after, failed := r.remediateNodeGPUs(ctx, cat, s)
	if err != nil {
		return 0, errors.Join(err, failed)
	}
	return Sooner(d.After, after), errors.Join(failed, r.updateNodeMarks(ctx, cat, s, d))
}

// createFromFeatureLabels makes the GPUNode of a node that Node Feature Discovery says has GPUs.
func (r *nodeReconciler) createFromFeatureLabels(ctx context.Context, cat *Catalog, name string) error {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if cat.Policy.Spec.Discovery.Source == v1alpha1.DiscoverScan || !hasGPUFeatureLabel(node) || !cat.Assign(node).Managed() {
		return nil
	}
	return r.CreateGPUNode(ctx, node)
}

// nfdLabels begin the labels of Node Feature Discovery for PCI devices.
const nfdLabels = "feature.node.kubernetes.io/pci-"

// hasGPUFeatureLabel reports whether Node Feature Discovery says that a node has an NVIDIA GPU, or perhaps one.
func hasGPUFeatureLabel(node *corev1.Node) bool {
	return slices.ContainsFunc([]string{"10de.present", "0302_10de.present", "0300_10de.present"}, func(name string) bool {
		return node.Labels[nfdLabels+name] == "true"
	})
}

// nodeStep is one decision about a node, with what it was decided from.
type nodeStep struct {
	*nodeReconciler
	cat *Catalog
	s   *nodeObservation
	d   phase.Decision
}

// nodeActions performs each action that phase can decide.
var nodeActions = map[phase.Action]func(nodeStep, context.Context) error{
	phase.Wait:        func(nodeStep, context.Context) error { return nil },
	phase.Place:       func(n nodeStep, ctx context.Context) error { return n.placeOperands(ctx, n.s, n.d.Labels) },
	phase.KeepHost:    func(n nodeStep, ctx context.Context) error { return n.GrantDriver(ctx, n.s.GPUNode, n.d.Driver) },
	phase.Adopt:       nodeStep.adoptDriver,
	phase.Taint:       nodeStep.taint,
	phase.Untaint:     func(n nodeStep, ctx context.Context) error { return n.UntaintNodeGPUs(ctx, n.s.GPUNode.Name) },
	phase.Enter:       nodeStep.enterMaintenance,
	phase.Leave:       func(n nodeStep, ctx context.Context) error { return n.LeaveMaintenance(ctx, n.s.GPUNode) },
	phase.Evict:       func(n nodeStep, ctx context.Context) error { return n.evict(ctx, n.s, n.s.GPUNode.Name, n.s.victims) },
	phase.Operate:     nodeStep.changeMIGMode,
	phase.EndOperate:  func(n nodeStep, ctx context.Context) error { return n.DeleteMIGModePod(ctx, n.s.GPUNode.Name) },
	phase.Validate:    func(n nodeStep, ctx context.Context) error { return n.createNodeValidation(ctx, n.cat, n.s) },
	phase.EndValidate: nodeStep.deleteValidation,
	phase.Record:      nodeStep.recordValidated,
	phase.RollBack:    nodeStep.rollBack,
}

// perform does what was decided.
func (n nodeStep) perform(ctx context.Context) error {
	act, known := nodeActions[n.d.Action]
	if !known {
		return fmt.Errorf("perform %q on node %s: no such action", n.d.Action, n.s.GPUNode.Name)
	}
	return act(n, ctx)
}

// adoptDriver writes what is good before the spec: after a crash between the two the action is performed again.
func (n nodeStep) adoptDriver(ctx context.Context) error {
	if n.d.Good {
		if err := n.RecordLastGoodDriver(ctx, n.s.GPUNode, n.d.Driver); err != nil {
			return err
		}
	}
	return n.GrantDriver(ctx, n.s.GPUNode, n.d.Driver)
}

func (n nodeStep) taint(ctx context.Context) error {
	return n.TaintNodeGPUs(ctx, n.s.GPUNode, n.s.Assignment.DRADriver, string(n.d.Maintenance.Operation))
}

func (n nodeStep) enterMaintenance(ctx context.Context) error {
	return n.EnterMaintenance(ctx, n.s.GPUNode, n.d.Maintenance, n.s.Now)
}

func (n nodeStep) deleteValidation(ctx context.Context) error {
	return n.DeleteValidation(ctx, n.s.GPUNode.Name, action.NodeValidationParts()...)
}

func (n nodeStep) recordValidated(ctx context.Context) error {
	if n.s.Status.Validated == nil {
		n.metrics.timeToReady.Observe(n.s.Now.Sub(n.s.GPUNode.CreationTimestamp.Time).Seconds())
	}
	return n.RecordValidated(ctx, n.s.GPUNode, n.s.Node.BootID, n.d.Attempt, n.s.Now)
}

func (n nodeStep) rollBack(ctx context.Context) error {
	grant := action.Grant{Driver: n.d.Driver, AgentPool: n.s.Spec.AgentPool, MIGMode: n.d.MIGMode}
	return n.RollBack(ctx, n.s.GPUNode, grant, n.d.Attempt)
}

func (n nodeStep) changeMIGMode(ctx context.Context) error {
	spec := n.cat.Policy.Spec
	return n.CreateMIGModePod(ctx, action.MIGModeChange{
		Node: n.s.GPUNode, Mode: n.s.Spec.MIGMode, Image: cmp.Or(spec.NodeAgent.Image, n.images.Node),
		PullSecrets: spec.DaemonSets.ImagePullSecrets, Paths: spec.HostPaths,
	})
}

// createsMIGDevices reports whether a node's GPUs can be sliced as they are. Where the MIG mode needs a reset, only with the mode on.
func createsMIGDevices(agent *v1alpha1.AgentStatus) bool {
	return agent != nil && agent.MIGCapable && !v1alpha1.MIGEnabled.Differs(agent)
}

// scheduler is who places pods with claims.
func scheduler(spec v1alpha1.ClusterPolicySpec) string {
	if spec.Scheduler.On() && spec.Scheduler.Mode == v1alpha1.SchedulerBeside {
		return render.OperandScheduler
	}
	return corev1.DefaultSchedulerName
}

// placeOperands writes the labels by which operands come and go.
func (r *nodeReconciler) placeOperands(ctx context.Context, s *nodeObservation, labels phase.Labels) error {
	if s.KubeNode == nil {
		return nil
	}
	return r.SetNodeLabels(ctx, s.KubeNode, action.OperandLabels(labels))
}

// evict asks for evictions, once for each pod. What is refused is remembered for the node, or for a GPU of it.
func (r *nodeReconciler) evict(ctx context.Context, s *nodeObservation, key string, victims []action.PodRef) error {
	refused, err := r.EvictPods(ctx, victims)
	r.drainer.refused.set(key, refused)
	r.metrics.evictions.WithLabelValues("refused").Add(float64(len(refused)))
	if done := len(victims) - len(refused); done > 0 && err == nil {
		r.metrics.evictions.WithLabelValues("granted").Add(float64(done))
		var names []string
		for _, v := range victims {
			names = append(names, v.Namespace+"/"+v.Name)
		}
		r.recorder.Eventf(s.GPUNode, nil, corev1.EventTypeNormal, "Evicting", "Evict", "%s", note("Pods that hold GPUs are evicted: "+strings.Join(names, ", ")))
	}
	return err
}

// longestNote is the longest text of an event.
const longestNote = 1000

func note(text string) string { return text[:min(len(text), longestNote)] }

// updateNodeMarks writes the labels that say what the GPUs are, and the readiness taint. A node that no policy chooses any more has neither.
func (r *nodeReconciler) updateNodeMarks(ctx context.Context, cat *Catalog, s *nodeObservation, d phase.Decision) error {
	if s.KubeNode == nil {
		return nil
	}
	if err := r.SetNodeLabels(ctx, s.KubeNode, describeNodeGPUs(cat, s)); err != nil {
		return err
	}
	if cat.Policy.Spec.ReadinessTaint && s.Assignment.Managed() && s.GPUNode.Status.Validated == nil && d.Phase != v1alpha1.PhaseReady {
		return r.AddReadinessTaint(ctx, s.KubeNode)
	}
	return r.RemoveReadinessTaint(ctx, s.KubeNode)
}

// describeNodeGPUs are the labels that say what the GPUs are; those that the installer wrote and that hold no more are empty.
func describeNodeGPUs(cat *Catalog, s *nodeObservation) map[string]string {
	labels := action.FeatureLabels(s.GPUNode.Status)
	switch {
	case !s.Assignment.Chosen:
		labels = map[string]string{}
	case !*cat.Policy.Spec.FeatureLabels.Enabled:
		labels = map[string]string{v1alpha1.LabelPresent: labels[v1alpha1.LabelPresent]}
	}
	for _, key := range action.FeatureLabelKeys() {
		if _, stays := labels[key]; !stays && action.OwnsNodeLabel(s.KubeNode, key) {
			labels[key] = ""
		}
	}
	return labels
}
