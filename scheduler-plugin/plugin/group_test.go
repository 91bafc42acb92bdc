package plugin

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
		want group
		ok   bool
	}{
		"none":     {&corev1.Pod{}, group{}, false},
		"by label": {member("a", ""), group{namespace: "default", label: "g"}, true},
		"a PodGroup counts first": {changed(member("a", ""), func(p *corev1.Pod) {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		}), group{namespace: "default", podGroup: "pg"}, true},
	}
	for name, test := range tests {
		if got, ok := groupOf(test.pod); got != test.want || ok != test.ok {
			t.Errorf("%s: %+v, %t, want %+v, %t", name, got, ok, test.want, test.ok)
		}
	}
}

// TestMembers asks from the place of pod a what is known of its group.
func TestMembers(t *testing.T) {
	a, b := member("a", ""), member("b", "")
	tests := map[string]struct {
		events func(g *groups, h cache.ResourceEventHandler)
		size   int
		nodes  []string
	}{
		"alone":          {func(_ *groups, h cache.ResourceEventHandler) { h.OnAdd(a, true) }, 1, nil},
		"not seen":       {func(*groups, cache.ResourceEventHandler) {}, 1, nil},
		"one that waits": {func(_ *groups, h cache.ResourceEventHandler) { h.OnAdd(a, true); h.OnAdd(b, false) }, 2, nil},
		"one that is reserved a node before it is seen": {func(g *groups, h cache.ResourceEventHandler) {
			g.place(b, "n")
			h.OnAdd(b, false)
		}, 2, []string{"n"}},
		"one that runs": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(b, false)
			h.OnUpdate(b, member("b", "n"))
		}, 2, []string{"n"}},
		"one whose node is taken back": {func(g *groups, h cache.ResourceEventHandler) {
			h.OnAdd(b, false)
			g.place(b, "n")
			g.remove(b)
			h.OnUpdate(b, b)
		}, 2, nil},
		"one that ends": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnUpdate(member("b", "n"), changed(member("b", "n"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
		}, 1, nil},
		"one that is deleted": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnDelete(cache.DeletedFinalStateUnknown{Obj: member("b", "n")})
		}, 1, nil},
		"one that leaves": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(member("b", "n"), false)
			h.OnUpdate(member("b", "n"), changed(member("b", "n"), func(p *corev1.Pod) { p.Labels = nil }))
		}, 1, nil},
		"one without devices": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(changed(member("b", "n"), func(p *corev1.Pod) { p.Spec.ResourceClaims = nil }), false)
		}, 1, nil},
		"one with an extended resource": {func(_ *groups, h cache.ResourceEventHandler) {
			h.OnAdd(changed(member("b", "n"), func(p *corev1.Pod) {
				p.Spec.ResourceClaims, p.Status.ExtendedResourceClaimStatus = nil, &corev1.PodExtendedResourceClaimStatus{}
			}), false)
		}, 2, []string{"n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGroups()
			test.events(g, g.handler())
			of, _ := groupOf(a)
			size, nodes := g.members(of, a.UID)
			if diff := gocmp.Diff(test.nodes, nodes); size != test.size || diff != "" {
				t.Errorf("size %d, want %d; nodes (-want +got):\n%s", size, test.size, diff)
			}
			g.remove(a)
			g.remove(b)
			if len(g.nodes) > 0 {
				t.Errorf("of the group without pods is left %v", g.nodes)
			}
		})
	}
}

// podGroups is a scheduler that knows one PodGroup and nothing else.
type podGroups struct {
	fwk.Handle
	fwk.SharedLister
	object *schedulingapi.PodGroup
}

func (p podGroups) SnapshotSharedLister() fwk.SharedLister { return p }
func (p podGroups) PodGroups() fwk.PodGroupLister          { return p }
func (p podGroups) Get(namespace, name string) (*schedulingapi.PodGroup, error) {
	if p.object.Namespace == namespace && p.object.Name == name {
		return p.object, nil
	}
	return nil, errors.New("not found")
}

func TestGroupSize(t *testing.T) {
	gang := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gang"}}
	gang.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 4}
	basic := gang.DeepCopy()
	basic.Spec.SchedulingPolicy.Gang = nil
	labelled := changed(member("a", ""), func(p *corev1.Pod) { p.Labels[GroupSizeLabel] = "3" })
	tests := map[string]struct {
		of     group
		pod    *corev1.Pod
		object *schedulingapi.PodGroup
		want   int
	}{
		"the label":              {group{namespace: "default", label: "g"}, labelled, gang, 3},
		"no label":               {group{namespace: "default", label: "g"}, member("a", ""), gang, 0},
		"a gang":                 {group{namespace: "default", podGroup: "gang"}, labelled, gang, 4},
		"a PodGroup of any size": {group{namespace: "default", podGroup: "gang"}, labelled, basic, 0},
		"a PodGroup to come":     {group{namespace: "default", podGroup: "other"}, labelled, gang, 0},
	}
	for name, test := range tests {
		p := &Plugin{handle: podGroups{object: test.object}}
		if got := p.groupSize(test.of, test.pod); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
