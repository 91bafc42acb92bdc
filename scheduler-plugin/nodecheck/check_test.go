package nodecheck_test

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/scheduler-plugin/nodecheck"
)

// situation is a node, the pods on it, and the pod to schedule.
type situation struct {
	node    *corev1.Node
	running []*corev1.Pod
	pod     *corev1.Pod
}

// request returns the resources that a container requests.
func request(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return list
}

func newPod(name string, requests corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}
}

// newSituation returns a node with 4 CPUs, 8 GiB and room for two pods, and a pod that requests one CPU and 1 GiB.
func newSituation() *situation {
	allocatable := request("4", "8Gi")
	allocatable[corev1.ResourcePods] = resource.MustParse("2")
	return &situation{
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"zone": "a"}},
			Status:     corev1.NodeStatus{Allocatable: allocatable},
		},
		pod: newPod("a", request("1", "1Gi")),
	}
}

// run adds a pod to the node.
func (s *situation) run(requests corev1.ResourceList) {
	pod := newPod("running", requests)
	pod.Spec.NodeName = "node"
	s.running = append(s.running, pod)
}

func (s *situation) taint(effect corev1.TaintEffect) {
	s.node.Spec.Taints = append(s.node.Spec.Taints, corev1.Taint{Key: "team", Value: "7", Effect: effect})
}

func (s *situation) tolerate(t corev1.Toleration) {
	s.pod.Spec.Tolerations = append(s.pod.Spec.Tolerations, t)
}

// require gives the pod a required node affinity with one term per expression.
func (s *situation) require(expressions ...corev1.NodeSelectorRequirement) {
	selector := &corev1.NodeSelector{}
	for _, e := range expressions {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}})
	}
	s.pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// snapshot returns the nodes of a scheduling cycle.
func (s *situation) snapshot() fwk.NodeInfoLister {
	return cache.NewSnapshot(s.running, []*corev1.Node{s.node}).NodeInfos()
}

// TestAllowsAgreesWithKubeScheduler checks room, taints and labels. kube-scheduler's plugins must give the same answer:
// a node that Allows rejects and they accept would be no candidate although the pod can run there.
func TestAllowsAgreesWithKubeScheduler(t *testing.T) {
	type test struct {
		change func(*situation)
		want   bool
	}
	comparison := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpGt, Value: "5", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]test{
		"an empty node":                  {func(*situation) {}, true},
		"all CPUs requested":             {func(s *situation) { s.pod = newPod("a", request("4", "8Gi")) }, true},
		"more CPU than the node has":     {func(s *situation) { s.pod = newPod("a", request("4001m", "")) }, false},
		"more memory than the node has":  {func(s *situation) { s.pod = newPod("a", request("", "8193Mi")) }, false},
		"the rest of the node requested": {func(s *situation) { s.run(request("3", "7Gi")) }, true},
		"less CPU left than requested":   {func(s *situation) { s.run(request("3001m", "")) }, false},
		"less memory left":               {func(s *situation) { s.run(request("", "7169Mi")) }, false},
		"one pod slot left":              {func(s *situation) { s.run(nil) }, true},
		"no pod slot left":               {func(s *situation) { s.run(nil); s.run(nil) }, false},
		"a node without allocatable":     {func(s *situation) { s.node.Status.Allocatable = nil }, false},
		// Both convert the quantity to 64 bits, without a check for overflow.
		"a quantity beyond 64 bits": {func(s *situation) { s.pod = newPod("a", request("1", "1e30")) }, true},
		"no request on a full node": {func(s *situation) {
			s.pod = newPod("a", nil)
			s.run(request("4", "8Gi"))
		}, true},
		// The kubelet lowers what is allocatable when its reservations grow, and pods that run stay.
		"no request on a node that runs more than it has": {func(s *situation) {
			s.pod = newPod("a", nil)
			s.run(request("5", "9Gi"))
		}, true},
		"only memory requested on a node short of CPU": {func(s *situation) {
			s.pod = newPod("a", request("", "1Gi"))
			s.run(request("5", "1Gi"))
		}, true},
		"only CPU requested on a node short of memory": {func(s *situation) {
			s.pod = newPod("a", request("1", ""))
			s.run(request("1", "9Gi"))
		}, true},
		"an init container that needs more than the containers": {func(s *situation) {
			s.pod.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: request("5", "")}}}
		}, false},
		"a sidecar that needs room in addition to the containers": {func(s *situation) {
			always := corev1.ContainerRestartPolicyAlways
			sidecar := corev1.Container{Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: request("3500m", "")}}
			s.pod.Spec.InitContainers = []corev1.Container{sidecar}
		}, false},
		"requests of the pod instead of its containers": {func(s *situation) {
			s.pod.Spec.Resources = &corev1.ResourceRequirements{Requests: request("5", "")}
		}, false},
		"overhead of the runtime class": {func(s *situation) { s.pod.Spec.Overhead = request("3500m", "") }, false},

		"taint NoSchedule":       {func(s *situation) { s.taint(corev1.TaintEffectNoSchedule) }, false},
		"taint NoExecute":        {func(s *situation) { s.taint(corev1.TaintEffectNoExecute) }, false},
		"taint PreferNoSchedule": {func(s *situation) { s.taint(corev1.TaintEffectPreferNoSchedule) }, true},
		"a tolerated taint": {func(s *situation) {
			s.taint(corev1.TaintEffectNoSchedule)
			s.tolerate(corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists})
		}, true},
		"a toleration of another value": {func(s *situation) {
			s.taint(corev1.TaintEffectNoSchedule)
			s.tolerate(corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: "8"})
		}, false},
		"one of two taints tolerated": {func(s *situation) {
			s.taint(corev1.TaintEffectNoSchedule)
			s.taint(corev1.TaintEffectNoExecute)
			s.tolerate(corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		}, false},
		"a toleration that compares numbers": {func(s *situation) {
			s.taint(corev1.TaintEffectNoSchedule)
			s.tolerate(comparison)
		}, false},
		"a cordoned node": {func(s *situation) { s.node.Spec.Unschedulable = true }, false},
		"a cordoned node, and a pod that tolerates it": {func(s *situation) {
			s.node.Spec.Unschedulable = true
			s.tolerate(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
		}, true},
		"a cordoned node with another taint": {func(s *situation) {
			s.node.Spec.Unschedulable = true
			s.taint(corev1.TaintEffectNoSchedule)
			s.tolerate(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
		}, false},

		"a node selector that matches":        {func(s *situation) { s.pod.Spec.NodeSelector = map[string]string{"zone": "a"} }, true},
		"a node selector that does not match": {func(s *situation) { s.pod.Spec.NodeSelector = map[string]string{"zone": "b"} }, false},
		"a node affinity that matches":        {func(s *situation) { s.require(in("zone", "b", "a")) }, true},
		"a node affinity that does not match": {func(s *situation) { s.require(in("zone", "b")) }, false},
		"a node affinity, one of two terms":   {func(s *situation) { s.require(in("zone", "b"), in("zone", "a")) }, true},
		"a node affinity without terms":       {func(s *situation) { s.require() }, false},
		"a node affinity that cannot be parsed": {func(s *situation) {
			s.require(corev1.NodeSelectorRequirement{Key: "zone", Operator: "Near", Values: []string{"a"}})
		}, false},
		"a term that cannot be parsed, and one that matches": {func(s *situation) {
			s.require(corev1.NodeSelectorRequirement{Key: "zone", Operator: "Near", Values: []string{"a"}}, in("zone", "a"))
		}, true},
		"a node affinity to another node by name": {func(s *situation) {
			s.require(in("zone", "a"))
			selector := s.pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			selector.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{in(metav1.ObjectNameField, "other")}
		}, false},
		"a preferred node affinity that does not match": {func(s *situation) {
			s.require(in("zone", "b"))
			required := s.pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			s.pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 1, Preference: required.NodeSelectorTerms[0]},
			}}
		}, true},
	}
	for _, operators := range []bool{false, true} {
		tests := maps.Clone(tests)
		if operators {
			accepted := tests["a toleration that compares numbers"]
			accepted.want = true
			tests["a toleration that compares numbers"] = accepted
		}
		for name, test := range tests {
			s := newSituation()
			test.change(s)
			check := nodecheck.New(t.Context(), s.pod, nodecheck.Config{Nodes: s.snapshot(), ComparisonOperators: operators})
			if got := check.Allows("node"); got != test.want {
				t.Errorf("%s (comparison operators %t): allowed %t, want %t", name, operators, got, test.want)
			}
			if got, want := inTreeAllows(t, s, operators), test.want; got != want {
				t.Errorf("%s (comparison operators %t): kube-scheduler's plugins allow it: %t, want %t", name, operators, got, want)
			}
		}
	}
}

// inTreeAllows reports whether the filters of kube-scheduler that a Check approximates accept the node.
func inTreeAllows(t *testing.T, s *situation, operators bool) bool {
	t.Helper()
	// DRAExtendedResource is off: it needs a manager of claims, and concerns neither CPU nor memory.
	on := feature.Features{EnableTaintTolerationComparisonOperators: operators, EnablePodLevelResources: true}
	strategy := &config.ScoringStrategy{Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}}}
	fit, err := noderesources.NewFit(t.Context(), &config.NodeResourcesFitArgs{ScoringStrategy: strategy}, nil, on)
	if err != nil {
		t.Fatal(err)
	}
	affinity, err := nodeaffinity.New(t.Context(), &config.NodeAffinityArgs{}, nil, on)
	if err != nil {
		t.Fatal(err)
	}
	taints, err := tainttoleration.New(t.Context(), nil, nil, on)
	if err != nil {
		t.Fatal(err)
	}
	unschedulable, err := nodeunschedulable.New(t.Context(), nil, nil, on)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.snapshot().Get("node")
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc([]fwk.Plugin{fit, affinity, taints, unschedulable}, func(p fwk.Plugin) bool {
		state := framework.NewCycleState()
		if first, ok := p.(fwk.PreFilterPlugin); ok {
			result, status := first.PreFilter(t.Context(), state, s.pod, []fwk.NodeInfo{info})
			switch {
			case status.IsSkip():
				return false
			case !status.IsSuccess():
				return true
			case !result.AllNodes() && !result.NodeNames.Has("node"):
				return true
			}
		}
		filter, ok := p.(fwk.FilterPlugin)
		if !ok {
			t.Fatalf("%s is no filter", p.Name())
		}
		return !filter.Filter(t.Context(), state, s.pod, info).IsSuccess()
	})
}

// Nodes that leave the cluster during the attempt are no candidates.
func TestAllowsOnlyNodesOfTheCycle(t *testing.T) {
	s := newSituation()
	if nodecheck.New(t.Context(), s.pod, nodecheck.Config{Nodes: s.snapshot()}).Allows("another") {
		t.Error("a node that is not in the snapshot is allowed")
	}
	// The scheduler keeps the entry of a deleted node until the last of its pods is deleted.
	if nodecheck.New(t.Context(), s.pod, nodecheck.Config{Nodes: deleted{}}).Allows("node") {
		t.Error("a node without a Node object is allowed")
	}
}

// deleted lists nodes whose Node objects are deleted.
type deleted struct{ fwk.NodeInfoLister }

func (deleted) Get(string) (fwk.NodeInfo, error) { return framework.NewNodeInfo(), nil }

// Maintenance is Tessera's: kube-scheduler's plugins do not evaluate the label.
func TestMaintenanceClosesTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		labels            map[string]string
		tolerates, wanted bool
	}{
		"no maintenance":                              {map[string]string{"zone": "a"}, false, true},
		"no labels":                                   {nil, false, true},
		"maintenance":                                 {map[string]string{v1alpha1.LabelMaintenance: "Upgrade"}, false, false},
		"maintenance without the operation":           {map[string]string{v1alpha1.LabelMaintenance: ""}, false, false},
		"maintenance, and a pod that tolerates it":    {map[string]string{v1alpha1.LabelMaintenance: "Upgrade"}, true, true},
		"no maintenance, and a pod that tolerates it": {nil, true, true},
	} {
		s := newSituation()
		s.node.Labels = test.labels
		check := nodecheck.New(t.Context(), s.pod, nodecheck.Config{Nodes: s.snapshot(), ToleratesMaintenance: test.tolerates})
		if got := check.Allows("node"); got != test.wanted {
			t.Errorf("%s: allowed %t, want %t", name, got, test.wanted)
		}
		if got := check.IsOpen(s.node); got != test.wanted {
			t.Errorf("%s: open %t, want %t", name, got, test.wanted)
		}
	}
}

// Preemption evaluates full nodes: IsOpen ignores what pods use, Allows does not. Neither changes the node, which all
// plugins share.
func TestIsOpenIgnoresRoom(t *testing.T) {
	s := newSituation()
	s.run(request("4", ""))
	check := nodecheck.New(t.Context(), s.pod, nodecheck.Config{Nodes: s.snapshot()})
	if !check.IsOpen(s.node) || check.Allows("node") {
		t.Errorf("full node: open %t, allowed %t, want true and false", check.IsOpen(s.node), check.Allows("node"))
	}
	s.node.Spec.Unschedulable = true
	s.node.Spec.Taints = make([]corev1.Taint, 1, 4)
	s.node.Spec.Taints[0] = corev1.Taint{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}
	before := s.node.DeepCopy()
	if check.IsOpen(s.node) {
		t.Error("a cordoned node is open")
	}
	if !slices.Equal(before.Spec.Taints, s.node.Spec.Taints) || len(s.node.Spec.Taints[:4][1].Key) > 0 {
		t.Errorf("the node's taints are %v, want %v", s.node.Spec.Taints, before.Spec.Taints)
	}
}
