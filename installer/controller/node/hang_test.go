package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
)

// A reconcile that does not return fails the check of liveness, also while those of other nodes end; one that takes long does not.
func TestHungReconcileFailsLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, failed := make(chan struct{}), errors.New("no answer")
		c := interceptor.NewClient(controllertest.NewPlainClient(t), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				<-free
				return failed
			},
		})
		r := New(Config{Cluster: action.Cluster{Client: c}, Catalogs: catalog.NewSource(c, controllertest.Namespace, render.Images{})})
		ended := make(chan error)
		go func() {
			_, err := r.Reconcile(t.Context(), trigger.Request("node1"))
			ended <- err
		}()
		<-time.After(trigger.ReconcileTimeout)
		r.work.Begin()() // that of another node
		if err := r.Live(nil); err != nil {
			t.Errorf("a slow reconcile: %v", err)
		}
		<-time.After(trigger.HangLimit - trigger.ReconcileTimeout)
		if r.Live(nil) == nil {
			t.Error("a reconcile that does not end is not found")
		}
		close(free)
		if err := <-ended; !errors.Is(err, failed) {
			t.Error(err)
		}
		if err := r.Live(nil); err != nil {
			t.Errorf("without a reconcile: %v", err)
		}
	})
}
