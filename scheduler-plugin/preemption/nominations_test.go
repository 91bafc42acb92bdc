package preemption

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// TestNominationOfADeletedPodEnds deletes the pod during its attempt: no event ends the nomination afterwards.
func TestNominationOfADeletedPodEnds(t *testing.T) {
	named := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: uid}}
	}
	deleting := named("pod")
	deleting.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		known *corev1.Pod
		kept  bool
	}{
		"exists":                   {named("pod"), true},
		"deleted":                  {nil, false},
		"being deleted":            {deleting, false},
		"recreated under its name": {named("other"), false},
	} {
		t.Run(name, func(t *testing.T) {
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if test.known != nil {
				if err := store.Add(test.known); err != nil {
					t.Fatal(err)
				}
			}
			var again []string
			r := requeue.NewRequeuer(requeue.NoVersion, func(pods []*corev1.Pod) {
				for _, pod := range pods {
					again = append(again, pod.Name)
				}
			})
			r.StartAttempt(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waiting"}})
			n := newNominations(index.New(index.Config{}), corelisters.NewPodLister(store), r)
			n.add(named("pod"), nomination{node: "node"}, nil)
			if _, kept := n.get("pod"); kept != test.kept {
				t.Errorf("nominated: %t, want %t", kept, test.kept)
			}
			n.end("pod")
			n.end("pod")
			if !slices.Equal(again, []string{"waiting"}) {
				t.Errorf("activated pods: %q, want only the waiting one", again)
			}
		})
	}
}
