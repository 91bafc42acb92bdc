package defrag

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/dryrun"
	"github.com/tessera-gpu/tessera/scheduler-plugin/defrag"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// stepLimit limits the search: ten seconds on a slow processor.
const stepLimit = int(10 * time.Second / fit.StepTime)

// runSteps are the steps that the other plugins take for a pod on a node.
const runSteps = int(500 * time.Microsecond / fit.StepTime)

// snapshot is the cluster as the search sees it.
type snapshot struct {
	*dryrun.Scheduler
	budget *fit.Budget
	// nodes and infos are by position; delegated are the names of nodes that are left out.
	nodes     []*index.Node
	infos     []fwk.NodeInfo
	delegated []string
	// claims are by UID, claimsOf by the UID of a pod that uses them.
	claims   map[types.UID]*resourceapi.ResourceClaim
	claimsOf map[types.UID][]*resourceapi.ResourceClaim
}

// group is pods that share claims and are moved together.
type group struct {
	node   int
	pods   map[types.UID]*corev1.Pod
	claims map[types.UID]*resourceapi.ResourceClaim
	held   []victims.Held
	// devices are the names of the devices. stays is why the group is not moved.
	devices []string
	stays   string
	// priority is the highest priority of its pods, work how long they have run, together.
	priority int32
	work     time.Duration
}

// newSnapshot reads the nodes and claims. The plugin has processed all objects.
func newSnapshot(ctx context.Context, client kubernetes.Interface, d *dryrun.Scheduler) (*snapshot, error) {
	s := &snapshot{Scheduler: d, budget: fit.NewBudget(stepLimit), claims: map[types.UID]*resourceapi.ResourceClaim{}, claimsOf: map[types.UID][]*resourceapi.ResourceClaim{}}
	infos, err := d.Nodes.List()
	if err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	slices.SortFunc(infos, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	for _, info := range infos {
		n, published := d.Plugin.Node(info.Node().Name)
		switch {
		case !published || len(n.Fit.GPUs) == 0:
		case n.DelegateReason != nil:
			s.delegated = append(s.delegated, n.Name)
		default:
			s.nodes, s.infos = append(s.nodes, n), append(s.infos, info)
		}
	}
	claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cluster.ExplainError("list ResourceClaims", err)
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		s.claims[claim.UID] = claim
		for _, user := range claim.Status.ReservedFor {
			s.claimsOf[user.UID] = append(s.claimsOf[user.UID], claim)
		}
	}
	return s, nil
}

// groups returns the pods with devices of a node, those that share a claim together.
func (s *snapshot) groups(node int) []*group {
	pods := map[types.UID]*corev1.Pod{}
	for _, p := range s.infos[node].GetPods() {
		pods[p.GetPod().UID] = p.GetPod()
	}
	var all []*group
	for _, h := range s.nodes[node].Held {
		at, use, published := s.nodes[node].UseOf(&h)
		claim := s.claims[h.UID]
		if !published || use.Shape == gpu.Monitor || h.Pod != "" || claim == nil {
			continue
		}
		g := &group{node: node, pods: map[types.UID]*corev1.Pod{}, claims: map[types.UID]*resourceapi.ResourceClaim{h.UID: claim}, held: []victims.Held{{GPU: at, Use: use}}, devices: []string{h.Result.Device}}
		if h.InFlight || len(claim.Status.ReservedFor) == 0 {
			g.stays = "its claim is not in use by a pod"
		}
		for _, user := range claim.Status.ReservedFor {
			if g.pods[user.UID] = pods[user.UID]; pods[user.UID] == nil {
				delete(g.pods, user.UID)
				g.stays = "its claim is in use by what is no pod of the node"
			}
			for _, other := range s.claimsOf[user.UID] { // also one for other devices, which the pod needs at its destination
				g.claims[other.UID] = other
			}
		}
		all = g.join(all)
	}
	return all
}

// join returns the groups with g, in which those that share a claim or a pod with it are merged.
func (g *group) join(groups []*group) []*group {
	return append(slices.DeleteFunc(groups, func(other *group) bool {
		shares := false
		for uid := range other.claims {
			shares = shares || g.claims[uid] != nil
		}
		for uid := range other.pods {
			shares = shares || g.pods[uid] != nil
		}
		if shares {
			maps.Copy(g.claims, other.claims)
			maps.Copy(g.pods, other.pods)
			g.held, g.devices = append(other.held, g.held...), append(other.devices, g.devices...)
			g.stays = cmp.Or(g.stays, other.stays)
		}
		return shares
	}), g)
}

// holder returns the group for the search, or why the plugin does not decide on its claims.
func (s *snapshot) holder(ctx context.Context, g *group, now time.Time) (h defrag.Holder, refusal string) {
	var claims []*resourceapi.ResourceClaim
	for _, claim := range g.claims {
		again := claim.DeepCopy()
		again.Status = resourceapi.ResourceClaimStatus{}
		claims = append(claims, again)
	}
	slices.SortFunc(claims, func(a, b *resourceapi.ResourceClaim) int { return cmp.Compare(a.Name, b.Name) })
	required, err := s.Plugin.ReadRequirements(claims, s.budget)
	if err != nil {
		return defrag.Holder{}, err.Error()
	}
	g.priority = -1 << 31
	pods := g.sortedPods()
	for _, pod := range pods {
		g.priority = max(g.priority, corev1helpers.PodPriority(pod))
		if pod.Status.StartTime != nil {
			g.work += now.Sub(pod.Status.StartTime.Time)
		}
	}
	cost := defrag.Cost{Priorities: []int32{g.priority}, Pods: len(pods), Work: g.work}
	return defrag.Holder{Node: g.node, Held: g.held, Cost: cost, Demand: s.demand(ctx, required, pods)}, ""
}

// sortedPods returns the pods by namespace and name.
func (g *group) sortedPods() []*corev1.Pod {
	return slices.SortedFunc(maps.Values(g.pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// podNames returns NAMESPACE/NAME of the pods.
func (g *group) podNames() []string {
	var names []string
	for _, pod := range g.sortedPods() {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	return names
}

// demand returns the demand of pods. Those that run count as gone from their node.
func (s *snapshot) demand(ctx context.Context, required *requirements.PodRequirements, pods []*corev1.Pod) defrag.Demand {
	known := map[int]bool{}
	return defrag.Demand{
		Requires: func(node int) *fit.Requirements { //nolint:contextcheck // selectors are evaluated in memory
			r, err := required.OnNode(s.nodes[node], s.budget)
			if err != nil {
				return nil // the in-tree allocator decides, or the limit is exceeded
			}
			return r
		},
		Runs: func(node int) bool {
			runs, evaluated := known[node]
			if !evaluated && s.budget.Spend(runSteps) {
				runs = !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !s.runs(ctx, p, pods, s.infos[node]) })
				known[node] = runs
			}
			return runs
		},
	}
}

// runs reports whether a pod passes the scheduler's other plugins on a node, without those that leave.
func (s *snapshot) runs(ctx context.Context, pod *corev1.Pod, leaving []*corev1.Pod, info fwk.NodeInfo) bool {
	again := pod.DeepCopy()
	again.Spec.NodeName = ""
	state := framework.NewCycleState()
	result, status, _ := s.Others.RunPreFilterPlugins(ctx, state, again)
	if !status.IsSuccess() || !result.AllNodes() && !result.NodeNames.Has(info.Node().Name) {
		return false
	}
	info = info.Snapshot()
	for _, left := range leaving {
		if left.Spec.NodeName != info.Node().Name {
			continue
		}
		removed, err := framework.NewPodInfo(left)
		if err != nil || info.RemovePod(klog.FromContext(ctx), left) != nil {
			return false
		}
		if !s.Others.RunPreFilterExtensionRemovePod(ctx, state, again, removed, info).IsSuccess() {
			return false
		}
	}
	return s.Others.RunFilterPlugins(ctx, state, again, info).IsSuccess()
}
