package policy

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
)

// A node that the discovery has come to is news, for it may be the last one that the policy waits for. Other operands are seen in the phases of nodes.
func TestAvailabilityOfTheDiscovery(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		set    string
		status appsv1.DaemonSetStatus
		want   bool
	}{
		"the same":                      {set: render.OperandDiscovery},
		"it is available on a node":     {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{NumberAvailable: 1}, want: true},
		"a node joins":                  {set: render.OperandDiscovery, status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1}, want: true},
		"a driver is available":         {set: "tessera-driver", status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, NumberAvailable: 1}},
		"an edit of a driver was taken": {set: "tessera-driver", status: appsv1.DaemonSetStatus{ObservedGeneration: 1}, want: true},
	}
	for name, test := range tests {
		old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: test.set}}
		now := old.DeepCopy()
		now.Status = test.status
		if got := workloadChanged().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// An update of a workload is news if its spec, labels or annotations changed, or the part of its status that a condition depends on.
func TestUpdatesOfWorkloads(t *testing.T) {
	t.Parallel()
	deployment := func(change func(*appsv1.Deployment)) client.Object {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: 1, Labels: map[string]string{"a": "b"}}}
		change(d)
		return d
	}
	old := deployment(func(*appsv1.Deployment) {})
	for name, test := range map[string]struct {
		old, now client.Object
		want     bool
	}{
		"the version":           {old, deployment(func(d *appsv1.Deployment) { d.ResourceVersion = "2" }), false},
		"the spec":              {old, deployment(func(d *appsv1.Deployment) { d.Generation = 2 }), true},
		"a label":               {old, deployment(func(d *appsv1.Deployment) { d.Labels["a"] = "c" }), true},
		"an annotation":         {old, deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }), true},
		"an available pod":      {old, deployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }), true},
		"a spec that was taken": {old, deployment(func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 1 }), true},
		"a pod that is updated": {old, deployment(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }), false},
		"another kind":          {&appsv1.ReplicaSet{}, &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{AvailableReplicas: 1}}, false},
	} {
		if got := workloadChanged().Update(event.UpdateEvent{ObjectOld: test.old, ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// Changes that come together request one pass, after a delay.
func TestChangesJoinInOnePass(t *testing.T) {
	t.Parallel()
	queue := &delayedQueue{}
	h := afterDelay()
	h.Create(t.Context(), event.CreateEvent{}, queue)
	h.Update(t.Context(), event.UpdateEvent{}, queue)
	h.Delete(t.Context(), event.DeleteEvent{}, queue)
	h.Generic(t.Context(), event.GenericEvent{}, queue)
	want := map[reconcile.Request]time.Duration{trigger.Request(v1alpha1.ClusterPolicyName): passDelay}
	if queue.changes != 4 || fmt.Sprint(queue.requests) != fmt.Sprint(want) {
		t.Errorf("%d changes request %v, want %v", queue.changes, queue.requests, want)
	}
}

// delayedQueue records what is added after a delay. As in a queue, equal requests are one.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	changes  int
	requests map[reconcile.Request]time.Duration
}

func (q *delayedQueue) AddAfter(request reconcile.Request, delay time.Duration) {
	if q.requests == nil {
		q.requests = map[reconcile.Request]time.Duration{}
	}
	q.changes++
	q.requests[request] = delay
}

// A pass follows the creation of each kind that the objects, rollouts and statuses depend on; ServiceMonitors are watched where the cluster serves them.
func TestChangesRequestAPass(t *testing.T) {
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(MonitorKind)
	for _, serves := range []bool{false, true} {
		var passes atomic.Int32
		c := interceptor.NewClient(controllertest.NewClient(t), interceptor.Funcs{
			Get: func(ctx context.Context, base client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if _, is := o.(*v1alpha1.ClusterPolicy); is {
					passes.Add(1)
				}
				return base.Get(ctx, key, o, options...)
			},
		})
		r := newReconciler(t, c)
		r.ServiceMonitors = serves
		w := controllertest.StartManager(t, c, r.SetUp)
		kinds := []client.Object{
			&v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}, &v1alpha1.GPUNode{}, &corev1.Node{}, &corev1.ConfigMap{}, &corev1.Secret{},
			&appsv1.DaemonSet{}, &appsv1.Deployment{}, &corev1.Service{}, &resourceapi.ResourceClaimTemplate{}, &policyv1.PodDisruptionBudget{},
			&nodev1.RuntimeClass{}, &resourceapi.DeviceTaintRule{},
		}
		if serves {
			kinds = append(kinds, monitor)
		}
		for _, object := range kinds {
			controllertest.Eventually(t, fmt.Sprintf("a watch of %T", object), func() bool { return w.Watched(object) })
		}
		for i, object := range kinds {
			w.Create(object)
			controllertest.Eventually(t, fmt.Sprintf("a pass after a change of %T", object), func() bool { return int(passes.Load()) > i })
		}
		if got := w.Watched(monitor); got != serves || int(passes.Load()) != len(kinds) {
			t.Errorf("ServiceMonitors are served: %t, watched: %t; %d passes after %d changes", serves, got, passes.Load(), len(kinds))
		}
	}
}
