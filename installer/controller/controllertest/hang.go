package controllertest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/installer/controller/trigger"
)

// Reconciler is a reconciler with a check of liveness.
type Reconciler interface {
	Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
	Live(*http.Request) error
}

// TestHang checks that a reconcile that does not return fails the check of liveness, and that one that
// takes long does not. makeReconciler returns the reconciler on a client whose reads do not return.
func TestHang(t *testing.T, request ctrl.Request, makeReconciler func(client.Client) Reconciler) {
	t.Helper()
	const period = 30 * time.Second // of the probe
	synctest.Test(t, func(t *testing.T) {
		free, failed := make(chan struct{}), errors.New("no answer")
		r := makeReconciler(interceptor.NewClient(NewPlainClient(t), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				<-free
				return failed
			},
		}))
		ended := make(chan error)
		go func() {
			_, err := r.Reconcile(t.Context(), request)
			ended <- err
		}()
		begun := time.Now()
		for r.Live(nil) == nil && time.Since(begun) < 2*trigger.HangLimit {
			<-time.After(period)
		}
		if found := time.Since(begun); found < trigger.HangLimit || found > trigger.HangLimit+2*period {
			t.Errorf("a reconcile that does not end is found after %v, want %v", found, trigger.HangLimit)
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
