package drain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Pods that would come back or must not be evicted have a reason each.
func TestEvictionBlockers(t *testing.T) {
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "o", Controller: new(true)}}
	}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		spec v1alpha1.DrainSpec
		want string
	}{
		"of a Job":       {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("Job")}}},
		"labeled":        {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("Job"), Labels: map[string]string{v1alpha1.LabelSkipDrain: "true"}}}, want: v1alpha1.LabelSkipDrain},
		"static":         {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: ""}}}},
		"a mirror pod":   {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, want: "static pod"},
		"of a DaemonSet": {pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("DaemonSet")}}, want: "DaemonSet o"},
		"bare":           {want: "drain.force"},
		"bare, forced":   {spec: v1alpha1.DrainSpec{Force: true}},
	} {
		if name == "static" {
			test.spec.Force = true
		}
		got := evictionBlocker(&test.pod, test.spec)
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// A pod that is being deleted is not evicted again, and one that cannot be read counts as a holder. A refused eviction is requested again, and its reason shows.
func TestInspect(t *testing.T) {
	owner := []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
	now := metav1.Now()
	d := &Drainer{refused: newRefusedEvictions(), live: pods{all: []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "leaving", UID: "1", DeletionTimestamp: &now}},
		{ObjectMeta: metav1.ObjectMeta{Name: "refused", UID: "2", OwnerReferences: owner}},
		{ObjectMeta: metav1.ObjectMeta{Name: "done", UID: "3"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	}}}
	d.refused.set("n", []action.RefusedEviction{{PodRef: action.PodRef{UID: "2"}, Reason: "a budget"}})
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}}
	for name, uid := range map[string]types.UID{"leaving": "1", "refused": "2", "done": "3", "unreadable": "4"} {
		key := types.NamespacedName{Name: name}
		u.Pods, u.UIDs[key] = append(u.Pods, key), []types.UID{uid}
	}
	drain, victims := d.Inspect(t.Context(), u, v1alpha1.DrainSpec{WaitFor: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Operator: "wrong"}}}}, time.Time{}, time.Now())
	if len(victims) != 1 || victims[0].Name != "refused" || !drain.Unreadable || len(drain.Holders) != 3 || len(drain.Waited) > 0 {
		t.Errorf("victims %+v, %+v", victims, drain)
	}
	if diff := cmp.Diff([]phase.BlockedPod{{Name: "/refused", Reason: "a budget"}}, drain.Blocked); diff != "" || len(drain.Leaving) != 1 || len(drain.Staying) > 0 {
		t.Errorf("%+v, blocked (-want +got):\n%s", drain, diff)
	}
	d.Clear("n")
	if drain, _ := d.Inspect(t.Context(), u, v1alpha1.DrainSpec{}, time.Time{}, time.Now()); len(drain.Blocked) > 0 {
		t.Errorf("after it was cleared: %+v", drain.Blocked)
	}
}

// An Event names the pods of evictions that the API server accepted; refused ones are kept by their key until the next request.
func TestEvict(t *testing.T) {
	victims := []action.PodRef{{Namespace: "a", Name: "p", UID: "1"}, {Namespace: "a", Name: "q", UID: "2"}}
	for name, test := range map[string]struct {
		refused []action.RefusedEviction
		err     error
		events  int
	}{
		"all accepted": {events: 1},
		"one refused":  {refused: []action.RefusedEviction{{PodRef: victims[0], Reason: "a budget"}}, events: 1},
		"all refused":  {refused: []action.RefusedEviction{{PodRef: victims[0], Reason: "a budget"}, {PodRef: victims[1], Reason: "a budget"}}},
		"an error":     {err: errors.New("no answer")},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, err := report.NewMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			recorder := events.NewFakeRecorder(10)
			d := New(action.Cluster{}, report.Recorder{Events: recorder}, metrics)
			d.evict = func(context.Context, []action.PodRef) ([]action.RefusedEviction, error) {
				return test.refused, test.err
			}
			if err := d.Evict(t.Context(), &v1alpha1.GPUNode{}, "n", victims); !errors.Is(err, test.err) {
				t.Errorf("got error %v", err)
			}
			if len(recorder.Events) != test.events {
				t.Errorf("%d Events", len(recorder.Events))
			}
			if got := d.refused.reason("1") != ""; got != (len(test.refused) > 0) {
				t.Errorf("kept as refused: %t", got)
			}
		})
	}
}

// Users of a pool are the pods of its claims, those that only monitor included, without validations and operands; a claim reserved for something else is
// unreadable.
func TestPoolUsers(t *testing.T) {
	claim := func(namespace, name, device string, consumer resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{consumer}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{{Pool: "p", Device: device}, {Pool: "p", Device: "m", AdminAccess: new(true)}}
		return c
	}
	pod := func(name string) resourceapi.ResourceClaimConsumerReference {
		return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)}
	}
	validation := claim("own", "v", "a", pod("v"))
	validation.Labels = map[string]string{render.LabelName: render.OperandValidation}
	monitor := func(namespace, name string) *resourceapi.ResourceClaim {
		c := claim(namespace, name, "m", pod(name))
		c.Status.Allocation.Devices.Results = c.Status.Allocation.Devices.Results[1:]
		return c
	}
	base := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithIndex(&resourceapi.ResourceClaim{}, informers.IndexClaimPool, informers.ClaimPools).
		WithObjects(validation, monitor("own", "dcgm"), monitor("u", "watcher"), claim("u", "1", "a", pod("x")), claim("u", "2", "b", pod("x")), claim("u", "3", "b", resourceapi.ResourceClaimConsumerReference{APIGroup: "g", Resource: "jobs"})).Build()
	cluster := action.Cluster{Client: base, Namespace: "own"}
	u, err := PoolUsers(t.Context(), cluster, "p")
	if err != nil || u.Claims != 3 || len(u.Pods) != 2 || len(u.UIDs[u.Pods[1]]) != 2 || !u.Unreadable || len(u.Devices) != 3 {
		t.Errorf("users %+v, error %v", u, err)
	}
	if d := u.Holders(); !d.Unreadable || len(d.Holders) != 2 || d.Holders[0] != "u/watcher" || d.Holders[1] != "u/x" {
		t.Errorf("holders %+v", d)
	}
	if u, err := DeviceUsers(t.Context(), cluster, "p", func(device string) bool { return device == "a" }); err != nil || u.Claims != 1 || u.Unreadable {
		t.Errorf("users of one device %+v, error %v", u, err)
	}
	refused := errors.New("refused")
	cluster.Client = interceptor.NewClient(base, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refused },
	})
	if _, err := PoolUsers(t.Context(), cluster, "p"); !errors.Is(err, refused) {
		t.Errorf("got error %v", err)
	}
}
