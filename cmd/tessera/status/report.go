package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The type of the report in JSON and YAML.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "InstallationStatus"
)

// Report is the state of the installation.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Ready reports whether the ClusterPolicy is Ready for its latest edit and every component runs.
	Ready bool `json:"ready"`
	// Reason is one sentence: why the installation is not ready, or what is ready.
	Reason string `json:"reason"`
	// Conditions are those of the ClusterPolicy; absent where no installer runs.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Components are the Deployments and DaemonSets of Tessera.
	Components []Component `json:"components"`
	// Phases count the GPU nodes by phase and reason, those that are not Ready first.
	Phases []Phase `json:"phases,omitempty"`
}

// Component is a workload of Tessera.
type Component struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Pods is the desired number of pods, Ready that of ready ones of the current revision.
	Pods  int32 `json:"pods"`
	Ready int32 `json:"ready"`
}

// Phase is the nodes in one phase for one reason.
type Phase struct {
	Phase  v1alpha1.NodePhase `json:"phase"`
	Reason string             `json:"reason,omitempty"`
	Count  int                `json:"count"`
	// Nodes are the names of the nodes, Message is that of the first.
	Nodes   []string `json:"nodes"`
	Message string   `json:"message,omitempty"`
}

// state is the objects from which Build makes a report. policy is nil where no installer runs.
type state struct {
	policy      *v1alpha1.ClusterPolicy
	nodes       []v1alpha1.GPUNode
	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
}

// build returns the report about the objects.
func build(s state) Report {
	r := Report{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Components: []Component{}, Phases: phases(s.nodes)}
	for _, d := range s.deployments {
		c := Component{Name: d.Name, Kind: "Deployment", Pods: 1, Ready: min(d.Status.ReadyReplicas, d.Status.UpdatedReplicas)}
		if d.Spec.Replicas != nil {
			c.Pods = *d.Spec.Replicas
		}
		r.Components = append(r.Components, c)
	}
	for _, d := range s.daemonSets {
		ready := d.Status.NumberReady
		if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType { // a driver's pod keeps an older template until the driver is upgraded
			ready = min(ready, d.Status.UpdatedNumberScheduled)
		}
		r.Components = append(r.Components, Component{Name: d.Name, Kind: "DaemonSet", Pods: d.Status.DesiredNumberScheduled, Ready: ready})
	}
	slices.SortFunc(r.Components, func(a, b Component) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	if s.policy != nil {
		r.Conditions = s.policy.Status.Conditions
	}
	r.Ready, r.Reason = r.judge(s.policy)
	return r
}

// judge returns whether the installation is ready, and why.
func (r Report) judge(policy *v1alpha1.ClusterPolicy) (bool, string) {
	if policy != nil {
		ready := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil, policy.Status.ObservedGeneration != policy.Generation:
			return false, "the installer has not processed the latest edit of the ClusterPolicy yet"
		case ready.Status != metav1.ConditionTrue:
			return false, strings.TrimSuffix(ready.Reason+": "+ready.Message, ": ")
		}
	}
	if len(r.Components) == 0 {
		return false, "no Deployment or DaemonSet has the label of Tessera: check that it is installed, and --system-namespace"
	}
	for _, c := range r.Components {
		if c.Ready < c.Pods {
			return false, fmt.Sprintf("%d of %d pods of %s %s are ready", c.Ready, c.Pods, c.Kind, c.Name)
		}
	}
	if policy == nil {
		return true, "all components are ready; there is no ClusterPolicy"
	}
	return true, fmt.Sprintf("%d of %d GPU nodes are Ready", policy.Status.Nodes.Ready, policy.Status.Nodes.Total)
}

// phases returns the nodes by phase and reason. Nodes without operands are left out.
func phases(nodes []v1alpha1.GPUNode) []Phase {
	var list []Phase
	for _, n := range nodes {
		phase := n.Status.Phase
		if phase == v1alpha1.PhaseAbsent {
			continue
		}
		reason, message := n.Status.Reason, n.Status.Message
		if phase == v1alpha1.PhaseReady {
			reason, message = "", ""
		}
		i := slices.IndexFunc(list, func(p Phase) bool { return p.Phase == phase && p.Reason == reason })
		if i < 0 {
			i = len(list)
			list = append(list, Phase{Phase: phase, Reason: reason, Message: message})
		}
		list[i].Count++
		list[i].Nodes = append(list[i].Nodes, n.Name)
	}
	slices.SortStableFunc(list, func(a, b Phase) int {
		return cmp.Or(cmp.Compare(rank(a.Phase), rank(b.Phase)), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// rank orders phases: those in which an administrator must act first, Ready last.
func rank(p v1alpha1.NodePhase) int {
	switch p {
	case v1alpha1.PhaseFailed:
		return 0
	case v1alpha1.PhaseBlocked:
		return 1
	case v1alpha1.PhaseRolledBack:
		return 2
	case v1alpha1.PhaseReady:
		return 4
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseUpgrading:
	}
	return 3
}
