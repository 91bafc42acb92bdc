package verify

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
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
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range fields {
		if value == "" || value == nil {
			t.Errorf("no image for %s", name)
		}
	}
}

// TestChartPullsFromAPrivateRegistry: with the repositories of all images replaced and a pull secret, no container of the chart, of its hooks and of the
// installer's operands keeps another registry, and every pod has the secret.
func TestChartPullsFromAPrivateRegistry(t *testing.T) {
	const registry, secret = "registry.example.com/mirror/", "registry-key"
	flags := []string{"--set", "imagePullSecrets={" + secret + "}"}
	for _, image := range []string{"installer", "node", "scheduler", "driver", "gds", "gdrcopy", "dcgm", "dcgmExporter", "vgpuDeviceManager"} {
		flags = append(flags, "--set", "images."+image+".repository="+registry+strings.ToLower(image))
	}
	var found []string
	for _, object := range slices.Concat(templated(t, "tessera-system", flags...), operands(t, flags...)) {
		pods, has := template(t, object)
		if !has {
			continue
		}
		name := object.GetKind() + " " + object.GetName()
		for _, container := range slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers) {
			image, mirrored := strings.CutPrefix(container.Image, registry)
			if !mirrored {
				t.Errorf("%s: container %s has the image %s", name, container.Name, container.Image)
			}
			found = append(found, strings.FieldsFunc(image, func(r rune) bool { return r == ':' || r == '@' })[0])
		}
		if !slices.ContainsFunc(pods.Spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool { return s.Name == secret }) {
			t.Errorf("%s: pull secrets %v", name, pods.Spec.ImagePullSecrets)
		}
	}
	slices.Sort(found)
	want := []string{"dcgm", "dcgmexporter", "driver", "gdrcopy", "gds", "installer", "node", "scheduler", "vgpudevicemanager"}
	if found = slices.Compact(found); !slices.Equal(found, want) {
		t.Errorf("images of %v, want %v: a value does not reach its container", found, want)
	}
}

// TestPodsAreOnlyOnNodesWithImages: with images for one architecture, every pod with an image of the release requires it, or a label that the installer sets
// after the discovery has run on the node.
func TestPodsAreOnlyOnNodesWithImages(t *testing.T) {
	flags := []string{"--set", "images.architectures={arm64}"}
	checked := 0
	for _, object := range slices.Concat(templated(t, "tessera-system", flags...), operands(t, flags...)) {
		pods, has := template(t, object)
		if !has || slices.ContainsFunc(slices.Collect(maps.Keys(pods.Spec.NodeSelector)), func(key string) bool { return strings.Contains(key, "tessera.dev/") }) {
			continue
		}
		ours := func(c corev1.Container) bool { return strings.HasPrefix(c.Image, "localhost/tessera/") }
		if !slices.ContainsFunc(slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers), ours) {
			continue
		}
		checked++
		name := object.GetKind() + " " + object.GetName()
		if a := pods.Spec.Affinity; a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			t.Errorf("%s is placed on nodes of every architecture", name)
			continue
		}
		for _, term := range pods.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return r.Key == corev1.LabelArchStable && r.Operator == corev1.NodeSelectorOpIn && slices.Equal(r.Values, []string{"arm64"})
			}) {
				t.Errorf("%s has the alternative %v, which lacks the architecture", name, term.MatchExpressions)
			}
		}
	}
	if checked < 5 {
		t.Errorf("checked %d workloads, want installer, two hooks, discovery and scheduler", checked)
	}
}
