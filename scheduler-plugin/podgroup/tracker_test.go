package podgroup

import (
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// member returns a pod with a claim, of group g.
func member(uid, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: types.UID(uid), Labels: map[string]string{GroupLabel: "g"}}}
	pod.Spec.NodeName, pod.Spec.ResourceClaims = node, []corev1.PodResourceClaim{{Name: "c"}}
	return pod
}

func changed(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	change(pod)
	return pod
}

func TestGroupOf(t *testing.T) {
	name := "pg"
	tests := map[string]struct {
		pod  *corev1.Pod
		want Group
		ok   bool
	}{
		"none":     {&corev1.Pod{}, Group{}, false},
		"by label": {member("a", ""), Group{namespace: "default", label: "g"}, true},
		"a PodGroup counts first": {changed(member("a", ""), func(p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		}), Group{namespace: "default", podGroup: "pg"}, true},
	}
	for name, test := range tests {
		if got, ok := GroupOf(test.pod); got != test.want || ok != test.ok {
			t.Errorf("%s: %+v, %t, want %+v, %t", name, got, ok, test.want, test.ok)
		}
	}
}

// TestMembers checks what the tracker returns to pod a about its group.
func TestMembers(t *testing.T) {
	a, b := member("a", ""), member("b", "")
	tests := map[string]struct {
		events func(g *Tracker, h cache.ResourceEventHandler)
		size   int
		nodes  []string
	}{
		"alone":          {func(_ *Tracker, h cache.ResourceEventHandler) { h.OnAdd(a, true) }, 1, nil},
		"not seen":       {func(*Tracker, cache.ResourceEventHandler) {}, 1, nil},
		"one that waits": {func(_ *Tracker, h cache.ResourceEventHandler) { h.OnAdd(a, true); h.OnAdd(b, false) }, 2, nil},
		"one that is reserved a node before it is seen": {func(g *Tracker, h cache.ResourceEventHandler) {
			g.Place(b, "n")
			h.OnAdd(b, false)
		}, 2, []string{"n"}},
		"one that runs": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(b, false)
			h.OnUpdate(b, member("b", "n"))
		}, 2, []string{"n"}},
		"one whose node is taken back": {func(g *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(b, false)
			g.Place(b, "n")
			g.Remove(b)
			h.OnUpdate(b, b)
		}, 2, nil},
		"one that ends": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnUpdate(member("b", "n"), changed(member("b", "n"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		}, 1, nil},
		"one that is deleted": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnDelete(cache.DeletedFinalStateUnknown{Obj: member("b", "n")})
		}, 1, nil},
		"one that leaves": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnUpdate(member("b", "n"), changed(member("b", "n"), func(p *corev1.Pod) { p.Labels = nil }))
		}, 1, nil},
		"one without devices": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(changed(member("b", "n"), func(p *corev1.Pod) { p.Spec.ResourceClaims = nil }), false)
		}, 1, nil},
		"one with an extended resource": {func(_ *Tracker, h cache.ResourceEventHandler) {
			h.OnAdd(changed(member("b", "n"), func(p *corev1.Pod) {
				p.Spec.ResourceClaims, p.Status.ExtendedResourceClaimStatus = nil, &corev1.PodExtendedResourceClaimStatus{}
			}), false)
		}, 2, []string{"n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewTracker()
			test.events(g, g.EventHandler())
			of, _ := GroupOf(a)
			size, nodes := g.Members(of, a.UID)
			if diff := gocmp.Diff(test.nodes, nodes); size != test.size || diff != "" {
				t.Errorf("size %d, want %d; nodes (-want +got):\n%s", size, test.size, diff)
			}
			g.Remove(a)
			g.Remove(b)
			if len(g.nodes) > 0 {
				t.Errorf("the tracker keeps %v for a group without pods", g.nodes)
			}
		})
	}
}

// podGroups is a lister of one PodGroup.
type podGroups struct {
	fwk.PodGroupLister
	object *schedulingapi.PodGroup
}

func (p podGroups) Get(namespace, name string) (*schedulingapi.PodGroup, error) {
	if p.object.Namespace == namespace && p.object.Name == name {
		return p.object, nil
	}
	return nil, errors.New("not found")
}

func TestDeclaredSize(t *testing.T) {
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gang"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 4}
	basic := gang.DeepCopy()
	basic.Spec.SchedulingPolicy.Gang = nil
	labelled := changed(member("a", ""), func(p *corev1.Pod) { p.Labels[GroupSizeLabel] = "3" })
	tests := map[string]struct {
		of     Group
		pod    *corev1.Pod
		object *schedulingapi.PodGroup
		want   int
	}{
		"the label":              {Group{namespace: "default", label: "g"}, labelled, gang, 3},
		"no label":               {Group{namespace: "default", label: "g"}, member("a", ""), gang, 0},
		"a gang":                 {Group{namespace: "default", podGroup: "gang"}, labelled, gang, 4},
		"a PodGroup of any size": {Group{namespace: "default", podGroup: "gang"}, labelled, basic, 0},
		"a PodGroup to come":     {Group{namespace: "default", podGroup: "other"}, labelled, gang, 0},
	}
	for name, test := range tests {
		if got := test.of.DeclaredSize(test.pod, podGroups{object: test.object}); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
