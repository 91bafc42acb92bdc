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

// Build returns the diagnosis of the state. A nil list in the state was not readable: findings that need it are left out.
func Build(s cluster.State, now time.Time) Report {
	report := Report{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Time: metav1.NewTime(now), Nodes: []Node{}}
	for _, n := range collectNodes(s, now) {
		report.Nodes = append(report.Nodes, n.diagnose())
	}
	slices.SortStableFunc(report.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(nodeRank(b.Severity), nodeRank(a.Severity)), cmp.Compare(a.Name, b.Name))
	})
	report.Cluster = componentFindings(s, now)
	sortBySeverity(report.Cluster)
	report.Summary = report.summarize()
	return report
}

// nodeRank orders the severities of nodes; that of a healthy node, the empty one, is lowest.
func nodeRank(severity string) int {
	if severity == "" {
		return -1
	}
	return gpus.SeverityRank(severity)
}

// nodeState is one node with GPUs and all objects that concern it.
type nodeState struct {
	name string
	// system is the namespace of Tessera's components.
	system string
	now    time.Time
	// node is nil where nodes are not readable, gpuNode and policy where no installer runs.
	node    *corev1.Node
	gpuNode *v1alpha1.GPUNode
	policy  *v1alpha1.ClusterPolicy
	// slices are the node's ResourceSlices, readings their pools and gpus the GPUs that they publish.
	slices   []resourceapi.ResourceSlice
	readings []wire.Reading
	gpus     []gpus.GPU
	// pools maps each pool to its node. claims are those with devices of the node. pods are all pods of the cluster by
	// namespace/name; nil where pods are not readable.
	pools  map[pool]string
	claims []resourceapi.ResourceClaim
	pods   map[string]*corev1.Pod
	// agents are the agent pods on the node, rules all DeviceTaintRules.
	agents []corev1.Pod
	rules  []resourceapi.DeviceTaintRule
}

// collectNodes returns the nodes with GPUs by name: those with a ResourceSlice, a GPUNode, an allocated device, or an agent that is not ready
// and therefore publishes nothing.
func collectNodes(s cluster.State, now time.Time) []*nodeState {
	known := map[string]*nodeState{}
	at := func(name string) *nodeState {
		if known[name] == nil {
			known[name] = &nodeState{name: name, system: s.System, now: now, rules: s.Rules}
		}
		return known[name]
	}
	for _, slice := range s.Slices {
		if slice.Spec.NodeName != nil {
			n := at(*slice.Spec.NodeName)
			n.slices = append(n.slices, slice)
		}
	}
	for i := range s.GPUNodes {
		if s.GPUNodes[i].Status.Phase != v1alpha1.PhaseAbsent {
			at(s.GPUNodes[i].Name).gpuNode = &s.GPUNodes[i]
		}
	}
	pools := poolNodes(s)
	for _, claim := range s.Claims {
		for _, node := range claimNodes(claim, pools) {
			n := at(node)
			n.pools = pools
			n.claims = append(n.claims, claim)
		}
	}
	for _, pod := range agentPods(s) {
		// A ready agent without ResourceSlices runs on a node without GPUs.
		if known[pod.Spec.NodeName] != nil || !isReady(pod) {
			n := at(pod.Spec.NodeName)
			n.agents = append(n.agents, pod)
		}
	}
	addRelatedObjects(s, known)
	var list []*nodeState
	for _, name := range slices.Sorted(maps.Keys(known)) {
		list = append(list, known[name])
	}
	return list
}

// addRelatedObjects adds the Node, the policy, the pods and the GPUs to each node state.
func addRelatedObjects(s cluster.State, known map[string]*nodeState) {
	for i := range s.Nodes {
		if n := known[s.Nodes[i].Name]; n != nil {
			n.node = &s.Nodes[i]
		}
	}
	pods := podsByName(s.Pods)
	policy := activePolicy(s.Policies)
	for _, n := range known {
		n.pods = pods
		n.policy = policy
		own := cluster.State{Slices: n.slices, Claims: n.claims, Drivers: s.Drivers}
		if n.gpuNode != nil {
			own.GPUNodes = []v1alpha1.GPUNode{*n.gpuNode}
		}
		for _, claim := range n.claims {
			own.Pods = append(own.Pods, consumerPods(claim, pods)...)
		}
		n.readings, n.gpus = own.Readings(), gpus.Build(own).Items
	}
}

// podsByName returns the pods by namespace/name; nil for a nil list.
func podsByName(list []corev1.Pod) map[string]*corev1.Pod {
	if list == nil {
		return nil
	}
	pods := map[string]*corev1.Pod{}
	for i := range list {
		pods[list[i].Namespace+"/"+list[i].Name] = &list[i]
	}
	return pods
}

// activePolicy returns the one ClusterPolicy that the installer follows, nil without one.
func activePolicy(list []v1alpha1.ClusterPolicy) *v1alpha1.ClusterPolicy {
	for i := range list {
		if list[i].Name == v1alpha1.ClusterPolicyName {
			return &list[i]
		}
	}
	return nil
}

// consumerPods returns the pods for which the claim is reserved.
func consumerPods(claim resourceapi.ResourceClaim, pods map[string]*corev1.Pod) []corev1.Pod {
	var list []corev1.Pod
	for _, by := range claim.Status.ReservedFor {
		if pod := pods[claim.Namespace+"/"+by.Name]; by.Resource == "pods" && pod != nil {
			list = append(list, *pod)
		}
	}
	return list
}

// diagnose returns the findings of the node.
func (n *nodeState) diagnose() Node {
	node := Node{Name: n.name, GPUs: len(n.gpus)}
	node.Findings = slices.Concat(n.gpuFindings(), n.agentFindings(), n.publicationFindings(), n.serviceFindings(), n.claimFindings())
	sortBySeverity(node.Findings)
	if len(node.Findings) > 0 {
		node.Severity = node.Findings[0].Severity
	}
	node.Driver, node.Kernel = n.versions()
	if n.gpuNode != nil {
		node.History = n.gpuNode.Status.History
	}
	return node
}

// versions returns the version of the node's driver, as its agent has reported it in this boot, and the release of its kernel; empty if unknown.
func (n *nodeState) versions() (driver, kernel string) {
	if n.node != nil {
		kernel = n.node.Status.NodeInfo.KernelVersion
	}
	if n.gpuNode == nil || n.gpuNode.Status.Agent == nil || n.node != nil && n.gpuNode.Status.Agent.BootID != n.node.Status.NodeInfo.BootID {
		return "", kernel
	}
	return n.gpuNode.Status.Agent.DriverVersion, kernel
}

// agentPods returns the agent pods that are bound to a node.
func agentPods(s cluster.State) []corev1.Pod {
	var list []corev1.Pod
	for _, pod := range s.Pods {
		if pod.Namespace == s.System && pod.Labels[cluster.LabelName] == cluster.AgentName && pod.Spec.NodeName != "" {
			list = append(list, pod)
		}
	}
	return list
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
