package plugin_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// TestAdditional has the rule that installer/render writes, which taints all devices for the stock scheduler.
func TestAdditional(t *testing.T) {
	objects := append(machines(t, "h100x2", 1), &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler." + driver},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: new(driver)},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintScheduler, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	})
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
