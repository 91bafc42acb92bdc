package intree_test

import (
	"testing"

	"k8s.io/client-go/informers"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// handle is the handle of a scheduler without informers. Plugins do not use them if the feature is disabled.
type handle struct{ fwk.Handle }

func (handle) SharedInformerFactory() informers.SharedInformerFactory { return nil }

// TestPoolFollowsTheParallelism lends more instances at the same time than a scheduler of the default parallelism needs.
func TestPoolFollowsTheParallelism(t *testing.T) {
	p, err := intree.NewPool(t.Context(), &schedulerconfig.DynamicResourcesArgs{}, handle{}, feature.Features{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const parallelism = 2*parallelize.DefaultParallelism + 1
	// lend lends n instances at the same time, for the same key, and returns them.
	lend := func(n int) map[*intree.Instance]bool {
		lent := map[*intree.Instance]bool{}
		var next func()
		next = func() {
			if len(lent) == n {
				return
			}
			p.With("key", intree.Scope{}, func(i *intree.Instance) *fwk.Status {
				if lent[i] {
					t.Fatal("an instance is lent twice at the same time")
				}
				lent[i] = true
				next()
				return nil
			})
		}
		next()
		return lent
	}
	first := lend(parallelism)
	for i := range lend(parallelism) {
		if !first[i] {
			t.Error("an instance is created although one was free")
		}
	}
	one, again := lend(1), lend(1)
	for i := range one {
		if !again[i] {
			t.Error("the same key gets another instance although its own is free")
		}
	}
}
