package podgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit/topology"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/rank"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// Attempt is an attempt to schedule a pod, as far as the choice of a clique depends on it.
type Attempt struct {
	Pod *corev1.Pod
	// Order is the order of the nodes for the pod's requirements, nil if the in-tree allocator decides on all nodes.
	Order     *rank.Order
	Index     *index.Index
	Tracker   *Tracker
	PodGroups fwk.PodGroupLister
	// Allows reports whether the pod may run on the node, as far as taints, affinity, cpu and memory are concerned.
	Allows func(node string) bool
}

// PreferredNodes returns the nodes on which the pod may run and that are in the NVLink clique of its group, or in the
// best clique for the group if none of its pods has a node yet. It returns nil for a pod without a group or without
// whole GPUs, and in clusters without cliques.
//
// A pod without a group costs nothing, another one the number of cliques plus the nodes of one or two of them.
func PreferredNodes(a Attempt) sets.Set[string] {
	of, ok := GroupOf(a.Pod)
	if !ok {
		return nil
	}
	gpus, ok := a.wholeGPUs()
	if !ok {
		return nil
	}
	cliques := a.Index.Cliques(gpus)
	if len(cliques) == 0 {
		return nil
	}
	known, placed := a.Tracker.Members(of, a.Pod.UID)
	a.countMembers(cliques, placed)
	wanted := max(known, of.DeclaredSize(a.Pod, a.PodGroups)) - len(placed)
	// The index counts free places without regard to the pod, which may not be allowed on some of the nodes. So the
	// best clique is recounted for the pod, and the comparison repeated, until the best one is a recounted one.
	recounted := map[string][]string{}
	for len(cliques) > 0 {
		best := slices.MinFunc(cliques, func(a, b topology.Clique) int { return a.Compare(b, wanted) })
		if nodes, ok := recounted[best.Name]; ok {
			return sets.New(nodes...)
		}
		at := slices.IndexFunc(cliques, func(c topology.Clique) bool { return c.Name == best.Name })
		nodes, free := a.usableNodes(best.Name, gpus)
		if len(nodes) == 0 {
			cliques = slices.Delete(cliques, at, at+1)
			continue
		}
		recounted[best.Name], cliques[at].Free = nodes, free
	}
	return nil
}

// wholeGPUs returns how many whole GPUs the pod takes on its best node, and false if it takes none: parts of GPUs have
// no NVLink. It returns 0, which stands for all GPUs of a node, if the in-tree allocator decides.
func (a Attempt) wholeGPUs() (int, bool) {
	if a.Order == nil {
		return 0, true
	}
	best := a.Order.Best(1, func(string) bool { return true })
	if len(best) == 0 {
		return 0, true
	}
	answer := a.Order.OnNode(best[0], a.Pod.UID)
	gpus := 0
	for _, pick := range answer.Choice.Picks {
		for _, device := range pick.Devices {
			if answer.Node.Fit.Devices[device].Use.Shape == gpu.Whole {
				gpus++
			}
		}
	}
	return gpus, gpus > 0
}

// countMembers sets the number of members of the cliques from the nodes of the group's pods.
func (a Attempt) countMembers(cliques []topology.Clique, nodes []string) {
	for _, node := range nodes {
		n, ok := a.Index.Node(node)
		if !ok {
			continue
		}
		if at := slices.IndexFunc(cliques, func(c topology.Clique) bool { return c.Name == n.Clique() }); at >= 0 {
			cliques[at].Members++
		}
	}
}

// usableNodes returns the nodes of the clique on which the pod may run, and the number of free places on them.
func (a Attempt) usableNodes(clique string, gpus int) (nodes []string, free int) {
	for _, name := range a.Index.CliqueNodes(clique) {
		answer := a.answerOn(name)
		if serves := answer.Fits || answer.Err != nil && answer.Node.Places(1) > 0; serves && a.Allows(name) {
			nodes = append(nodes, name)
			free += answer.Node.Places(gpus)
		}
	}
	return nodes, free
}

// answerOn returns the answer of fit on the node, or ErrDelegate if the in-tree allocator decides.
func (a Attempt) answerOn(node string) rank.Answer {
	if a.Order != nil {
		return a.Order.OnNode(node, a.Pod.UID)
	}
	n, ok := a.Index.Node(node)
	if !ok {
		return rank.Answer{}
	}
	return rank.Answer{Node: n, Err: requirements.ErrDelegate}
}
