package verify

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestChartNamesEveryImage: the installer reads the images that the chart writes, and the list is complete.
func TestChartNamesEveryImage(t *testing.T) {
	config := named[*corev1.ConfigMap](t, rendered(t), "tessera-installer-images")
	var images render.Images
	if err := sigsyaml.UnmarshalStrict([]byte(config.Data["images.yaml"]), &images); err != nil {
		t.Fatal(err)
	}
	if images.Node != bundle.NodeImage || images.Scheduler != bundle.SchedulerImage {
		t.Errorf("images %+v, want those of the bundle", images)
	}
	images.VGPUManager = "the customer's"
	data, err := json.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if value == "" {
			t.Errorf("no image for %s", name)
		}
	}
}
