package plugin_test

import (
	"testing"
)

func TestPodGetsADevice(t *testing.T) {
	c := newCluster(t, "", machines(t, "h100x8", 2)...)
	c.run("a", "1g.10gb", 1)
	node := c.bound("a")
	t.Log(node, devices(c.claim("a")))
	if got := len(devices(c.claim("a"))); got != 1 {
		t.Errorf("the pod on %s has %d devices, want 1", node, got)
	}
}
