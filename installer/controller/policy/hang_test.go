package policy

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

func TestHungReconcileFailsLiveness(t *testing.T) {
	controllertest.TestHang(t, ctrl.Request{}, func(c client.Client) controllertest.Reconciler {
		return New(Config{Cluster: action.Cluster{Client: c}, Catalogs: catalog.NewSource(c, controllertest.Namespace, render.Images{})})
	})
}
