package extended_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tessera-gpu/tessera/scheduler-plugin/extended"
)

func controllerRef(pod *corev1.Pod) metav1.OwnerReference {
	return *metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
}

// TestOfferedAnywhere sends events of nodes to the handler.
func TestOfferedAnywhere(t *testing.T) {
	type events = func(cache.ResourceEventHandler)
	offering, empty := newNode("n", list{gpus: "8"}), newNode("n", nil)
	tests := map[string]struct {
		events events
		want   bool
	}{
		"no nodes":                  {func(cache.ResourceEventHandler) {}, false},
		"a node that offers it":     {func(h cache.ResourceEventHandler) { h.OnAdd(offering, true) }, true},
		"a node that offers others": {func(h cache.ResourceEventHandler) { h.OnAdd(newNode("n", list{"cpu": "8", fpgas: "1"}), true) }, false},
		"a quantity of zero":        {func(h cache.ResourceEventHandler) { h.OnAdd(newNode("n", list{gpus: "0"}), true) }, false},
		"a negative quantity":       {func(h cache.ResourceEventHandler) { h.OnAdd(newNode("n", list{gpus: "-1"}), true) }, true},
		"a device plugin that registers": {func(h cache.ResourceEventHandler) {
			h.OnAdd(empty, true)
			h.OnUpdate(empty, offering)
		}, true},
		"a device plugin that is removed": {func(h cache.ResourceEventHandler) {
			h.OnAdd(offering, true)
			h.OnUpdate(offering, newNode("n", list{gpus: "0"}))
		}, false},
		"a node that is deleted": {func(h cache.ResourceEventHandler) {
			h.OnAdd(offering, true)
			h.OnDelete(offering)
		}, false},
		"a deletion that the informer missed": {func(h cache.ResourceEventHandler) {
			h.OnAdd(offering, true)
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n", Obj: empty})
		}, false},
		"the second of two nodes": {func(h cache.ResourceEventHandler) {
			h.OnAdd(offering, true)
			h.OnAdd(newNode("m", list{gpus: "1"}), true)
			h.OnDelete(offering)
		}, true},
		// The informer's resync sends updates without changes.
		"the same state twice": {func(h cache.ResourceEventHandler) {
			h.OnAdd(offering, true)
			h.OnUpdate(offering, offering)
			h.OnDelete(offering)
		}, false},
		"a deletion that is repeated": {func(h cache.ResourceEventHandler) {
			h.OnAdd(newNode("m", list{gpus: "1"}), true)
			h.OnAdd(offering, true)
			h.OnDelete(offering)
			h.OnDelete(offering)
		}, true},
		"a deletion of a node that was never added": {func(h cache.ResourceEventHandler) {
			h.OnDelete(offering)
			h.OnAdd(newNode("m", list{gpus: "1"}), true)
		}, true},
		"objects that are no nodes": {func(h cache.ResourceEventHandler) {
			h.OnAdd(&corev1.Pod{}, true)
			h.OnUpdate(nil, nil)
			h.OnDelete("n")
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n"})
		}, false},
	}
	for name, test := range tests {
		r, _ := newResources(t, newManager(), true)
		test.events(r.NodeHandler())
		if got := r.OfferedAnywhere([]corev1.ResourceName{nics, gpus}); got != test.want {
			t.Errorf("%s: offered %t, want %t", name, got, test.want)
		}
		if r.OfferedAnywhere(nil) || r.OfferedAnywhere([]corev1.ResourceName{implicit}) {
			t.Errorf("%s: offered without the resource", name)
		}
	}
}

// Attempts read while the informer of nodes writes.
func TestOffersAreSafeForConcurrentUse(t *testing.T) {
	r, _ := newResources(t, newManager(), true)
	h := r.NodeHandler()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			n := newNode(fmt.Sprint(i), list{gpus: "1"})
			for range 100 {
				h.OnAdd(n, false)
				if !r.OfferedAnywhere([]corev1.ResourceName{gpus}) {
					t.Error("a node that offers the resource is not counted")
				}
				h.OnDelete(n)
			}
		})
	}
	group.Wait()
	if r.OfferedAnywhere([]corev1.ResourceName{gpus}) {
		t.Error("deleted nodes are counted")
	}
}

// An informer accepts an index once: profiles that do not share one Factory would index the claims twice.
func TestNewResourcesAcceptsAnInformerOnce(t *testing.T) {
	informer := claimInformer()
	if _, err := extended.NewResources(newManager(), informer, true); err != nil {
		t.Fatal(err)
	}
	_, err := extended.NewResources(newManager(), informer, true)
	if err == nil || !strings.Contains(err.Error(), "one Factory") {
		t.Errorf("the second call returns %v, want an error that names the Factory", err)
	}
}
