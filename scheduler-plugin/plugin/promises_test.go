package plugin

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

// TestPromiseToAPodThatIsGone has the pod be deleted while it is tried: of its end nobody tells after that.
func TestPromiseToAPodThatIsGone(t *testing.T) {
	named := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: uid}}
	}
	for name, test := range map[string]struct {
		known *corev1.Pod
		kept  bool
	}{
		"there":                    {named("pod"), true},
		"gone":                     {nil, false},
		"being deleted":            {changed(named("pod"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false},
		"another one has its name": {named("other"), false},
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
			p := newPromises(index.New(index.Config{}), corelisters.NewPodLister(store), r)
			p.keep(named("pod"), promise{node: "node"}, nil)
			if _, kept := p.get("pod"); kept != test.kept {
				t.Errorf("the promise is kept: %t, want %t", kept, test.kept)
			}
			p.end("pod")
			p.end("pod")
			if !slices.Equal(again, []string{"waiting"}) {
				t.Errorf("tried again: %q", again)
			}
		})
	}
}
