package plugin_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// TestAdditional uses devices that are tainted for the stock scheduler.
func TestAdditional(t *testing.T) {
	objects := machines(t, "h100x2", 1)
	for _, object := range objects {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: v1alpha1.TaintScheduler, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
	}
	t.Run("additional", func(t *testing.T) {
		c := newCluster(t, "mode: Additional", objects...)
		c.run("a", "gpu", 1)
		c.bound("a")
	})
	t.Run("replace", func(t *testing.T) {
		c := newCluster(t, "", objects...)
		c.run("a", "gpu", 1)
		t.Log(c.pending("a"))
	})
	t.Run("stock scheduler", func(t *testing.T) {
		c := newStockCluster(t, objects...)
		c.run("a", "gpu", 1)
		t.Log(c.pending("a"))
	})
}
