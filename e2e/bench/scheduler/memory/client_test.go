package memory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// An informer receives the initial objects, and then every write in order.
func TestInformer(t *testing.T) {
	held := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"}}
	c := New(Content{
		Nodes:  []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}},
		Slices: []resourceapi.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: "a-0"}}},
		Claims: []*resourceapi.ResourceClaim{held},
	})
	factory := informers.NewSharedInformerFactory(c, 0)
	seen := make(chan string, 10)
	add := func(o any) {
		if pod, ok := o.(*corev1.Pod); ok {
			seen <- pod.Name + " " + pod.Status.NominatedNodeName + " " + pod.Spec.NodeName
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }})
	if err != nil {
		t.Fatal(err)
	}
	stores := map[string]cache.Store{
		"nodes": factory.Core().V1().Nodes().Informer().GetStore(), "slices": factory.Resource().V1().ResourceSlices().Informer().GetStore(),
		"claims": factory.Resource().V1().ResourceClaims().Informer().GetStore(),
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	had := map[string]int{}
	for kind, store := range stores {
		had[kind] = len(store.List())
	}
	if diff := cmp.Diff(map[string]int{"nodes": 2, "slices": 1, "claims": 1}, had); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}

	c.CreatePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}})
	pods := c.CoreV1().Pods("default")
	if _, err := pods.Patch(t.Context(), "p", types.StrategicMergePatchType, []byte(`{"status":{"nominatedNodeName":"b"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Name: "b"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// An informer may get the pod from its list, in a later state; it always receives the last state.
	last := ""
	for last != "p b b" {
		select {
		case last = <-seen:
		case <-time.After(time.Minute):
			t.Fatalf("saw %q last", last)
		}
	}
	if err := pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "q"}}, metav1.CreateOptions{}); err == nil {
		t.Error("bound a pod that does not exist")
	}
}

func TestClaims(t *testing.T) {
	c := New(Content{})
	c.CreateClaim(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}})
	claims := c.ResourceV1().ResourceClaims("default")
	created, err := claims.Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := created.DeepCopy()
	changed.Status.Allocation = &resourceapi.AllocationResult{}
	if _, err := claims.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := claims.Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Allocation == nil || got.ResourceVersion == created.ResourceVersion || created.Status.Allocation != nil {
		t.Errorf("written: %v; before: %v", got, created)
	}
}
