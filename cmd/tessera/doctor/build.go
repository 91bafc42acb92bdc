package doctor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// agentName is the agents' app.kubernetes.io/name.
const agentName = "tessera-node"

// labelName is the label with the name of a part of Tessera.
const labelName = "app.kubernetes.io/name"

// Build judges a cluster at a moment. What is nil in the state could not be seen and is not judged.
func Build(s cluster.State, now time.Time) Report {
	report := Report{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Time: metav1.NewTime(now), Nodes: []Node{}}
	for _, p := range patients(s, now) {
		report.Nodes = append(report.Nodes, p.examine())
	}
	slices.SortStableFunc(report.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(rank(b.Severity), rank(a.Severity)), cmp.Compare(a.Name, b.Name))
	})
	report.Cluster = components(s, now)
	worstFirst(report.Cluster)
	report.Summary = report.summarize()
	return report
}

// rank orders severities; none is less than all.
func rank(severity string) int {
	if severity == "" {
		return -1
	}
	return gpus.Rank(severity)
}

// patient is one node with GPUs, with all that the cluster says about it.
type patient struct {
	name string
	now  time.Time
	// node is nil where nodes cannot be seen, gpuNode and policy where there is no installer.
	node    *corev1.Node
	gpuNode *v1alpha1.GPUNode
	policy  *v1alpha1.ClusterPolicy
	// slices are the node's, readings what they say, gpus what is on them.
	slices   []resourceapi.ResourceSlice
	readings []wire.Reading
	gpus     []gpus.GPU
	// pools are the nodes of the pools; claims are those with devices of the node, pods all pods by namespace and name; nil where they cannot be seen.
	pools  map[pool]string
	claims []resourceapi.ResourceClaim
	pods   map[string]*corev1.Pod
	// agents are the pods of agents on the node.
	agents []corev1.Pod
	rules  []resourceapi.DeviceTaintRule
}

// patients returns the nodes that have GPUs, or would have if all were well.
func patients(s cluster.State, now time.Time) []*patient {
	known := map[string]*patient{}
	at := func(name string) *patient {
		if known[name] == nil {
			known[name] = &patient{name: name, now: now, rules: s.Rules}
		}
		return known[name]
	}
	for _, slice := range s.Slices {
		if slice.Spec.NodeName != nil {
			p := at(*slice.Spec.NodeName)
			p.slices = append(p.slices, slice)
		}
	}
	for i := range s.GPUNodes {
		if s.GPUNodes[i].Status.Phase != v1alpha1.PhaseAbsent {
			at(s.GPUNodes[i].Name).gpuNode = &s.GPUNodes[i]
		}
	}
	pools := poolsOf(s)
	for _, claim := range s.Claims {
		for _, node := range nodesOf(claim, pools) {
			p := at(node)
			p.pools = pools
			p.claims = append(p.claims, claim)
		}
	}
	for _, pod := range agents(s.Pods) {
		// One that is ready where nothing is published looks after no GPU.
		if known[pod.Spec.NodeName] != nil || !ready(pod) {
			p := at(pod.Spec.NodeName)
			p.agents = append(p.agents, pod)
		}
	}
	complete(s, known)
	var list []*patient
	for _, name := range slices.Sorted(maps.Keys(known)) {
		list = append(list, known[name])
	}
	return list
}

// complete adds what is looked up by node.
func complete(s cluster.State, known map[string]*patient) {
	for i := range s.Nodes {
		if p := known[s.Nodes[i].Name]; p != nil {
			p.node = &s.Nodes[i]
		}
	}
	pods := byName(s.Pods)
	policy := policyOf(s.Policies)
	for _, p := range known {
		p.pods = pods
		p.policy = policy
		own := cluster.State{Slices: p.slices, Claims: p.claims, Drivers: s.Drivers}
		if p.gpuNode != nil {
			own.GPUNodes = []v1alpha1.GPUNode{*p.gpuNode}
		}
		for _, claim := range p.claims {
			own.Pods = append(own.Pods, users(claim, pods)...)
		}
		p.readings, p.gpus = own.Readings(), gpus.Build(own).Items
	}
}

// byName returns the pods by namespace and name; nil where they cannot be seen.
func byName(list []corev1.Pod) map[string]*corev1.Pod {
	if list == nil {
		return nil
	}
	pods := map[string]*corev1.Pod{}
	for i := range list {
		pods[list[i].Namespace+"/"+list[i].Name] = &list[i]
	}
	return pods
}

// policyOf returns the policy that is in force; nil without one.
func policyOf(list []v1alpha1.ClusterPolicy) *v1alpha1.ClusterPolicy {
	for i := range list {
		if list[i].Name == v1alpha1.ClusterPolicyName {
			return &list[i]
		}
	}
	return nil
}

// users returns the pods for which the claim is reserved.
func users(claim resourceapi.ResourceClaim, pods map[string]*corev1.Pod) []corev1.Pod {
	var list []corev1.Pod
	for _, by := range claim.Status.ReservedFor {
		if pod := pods[claim.Namespace+"/"+by.Name]; by.Resource == "pods" && pod != nil {
			list = append(list, *pod)
		}
	}
	return list
}

// examine returns what is wrong with the node.
func (p *patient) examine() Node {
	n := Node{Name: p.name, GPUs: len(p.gpus)}
	n.Findings = slices.Concat(p.hardware(), p.agency(), p.publication(), p.service(), p.claimed())
	worstFirst(n.Findings)
	if len(n.Findings) > 0 {
		n.Severity = n.Findings[0].Severity
	}
	if p.gpuNode != nil {
		n.History = p.gpuNode.Status.History
	}
	return n
}

// agents returns the pods of agents that are on a node.
func agents(pods []corev1.Pod) []corev1.Pod {
	var list []corev1.Pod
	for _, pod := range pods {
		if pod.Namespace == cluster.SystemNamespace && pod.Labels[labelName] == agentName && pod.Spec.NodeName != "" {
			list = append(list, pod)
		}
	}
	return list
}

func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
