package render_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/render"
)

// inputs are clusters that together have all objects.
func inputs() []render.Input { return []render.Input{plain(), everything(), simulated()} }

func TestObjectsAreTheSameEveryTime(t *testing.T) {
	for _, in := range inputs() {
		before, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		want := text(t, objects(t, in))
		for range 20 {
			if diff := cmp.Diff(string(want), string(text(t, objects(t, in)))); diff != "" {
				t.Fatalf("rendered twice: -first +later\n%s", diff)
			}
		}
		after, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(before), string(after)); diff != "" {
			t.Errorf("rendering changed its input: -before +after\n%s", diff)
		}
	}
}

func TestOrderOfDriversIsFree(t *testing.T) {
	a, b := everything(), everything()
	slices.Reverse(b.Drivers)
	if diff := cmp.Diff(string(text(t, objects(t, a))), string(text(t, objects(t, b)))); diff != "" {
		t.Errorf("-one order +the other\n%s", diff)
	}
}

func TestEveryObjectIsLabeled(t *testing.T) {
	for _, in := range inputs() {
		names := map[string]bool{}
		for _, object := range objects(t, in) {
			name := title(object)
			if strings.HasPrefix(name, "/") || names[name] {
				t.Errorf("%s: has no kind, or is there twice", name)
			}
			names[name] = true
			if object.GetLabels()[render.LabelManagedBy] != render.ManagedBy || object.GetAnnotations()[render.AnnotationHash] == "" {
				t.Errorf("%s: has no label of the installer or no hash", name)
			}
			if pod, ok := templateOf(object); ok && pod.Labels[render.LabelManagedBy] != "" {
				t.Errorf("%s: its pods have the installer's label and would be pruned", name)
			}
		}
	}
}

func TestHashChangesWithTheObjectAlone(t *testing.T) {
	hashes := func(in render.Input) map[string]string {
		all := map[string]string{}
		for _, object := range objects(t, in) {
			all[title(object)] = object.GetAnnotations()[render.AnnotationHash]
		}
		return all
	}
	before, in := hashes(everything()), everything()
	in.Policy.Spec.Toolkit.Args = []string{"--own"}
	after := hashes(in)
	for name, hash := range before {
		if changed := after[name] != hash; changed != (name == "DaemonSet/tessera-toolkit") {
			t.Errorf("%s: changed: %v", name, changed)
		}
	}
}

// TestWhatNodesStillCarryStays checks the order in which a changed node label removes pods, and that the objects of labels that nodes still have are
// kept.
func TestWhatNodesStillCarryStays(t *testing.T) {
	in := everything()
	in.Policy.Spec.Driver.Enabled = new(false)
	in.Policy.Spec.NodeAgent.Enabled = new(false)
	in.Policy.Spec.SandboxWorkloads.Enabled = false
	in.Agents = []string{"sandbox", "gone", "default"}
	got := titles(objects(t, in))
	for _, want := range []string{"DaemonSet/tessera-node", "DaemonSet/tessera-node-gone", "DaemonSet/tessera-node-sandbox", "ConfigMap/tessera-node-config-gone"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is gone while nodes carry its label", want)
		}
	}
	if n := len(slices.DeleteFunc(got, func(name string) bool { return !strings.HasPrefix(name, "DaemonSet/tessera-driver-") })); n != 2 {
		t.Errorf("%d driver DaemonSets are left of 2 that nodes have", n)
	}
}

func TestNoImageIsAnError(t *testing.T) {
	in := plain()
	in.Images.DCGMExporter = ""
	if _, err := render.Objects(in); err == nil || !strings.Contains(err.Error(), "the release has no image for the container nvidia-dcgm-exporter") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkObjects(b *testing.B) {
	in := everything()
	for b.Loop() {
		if _, err := render.Objects(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDriver(b *testing.B) {
	in := everything()
	for b.Loop() {
		drv(b, in, in.Drivers[0])
	}
}

// title is kind and name of an object.
func title(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + "/" + object.GetName()
}

func titles(all []client.Object) []string {
	names := make([]string, 0, len(all))
	for _, object := range all {
		names = append(names, title(object))
	}
	return names
}

// driverSet returns the one driver DaemonSet.
func driverSet(t testing.TB, in render.Input) *appsv1.DaemonSet {
	t.Helper()
	all := driverSets(t, in)
	if len(all) != 1 {
		t.Fatalf("%d driver DaemonSets, want one", len(all))
	}
	return all[0]
}

func driverSets(t testing.TB, in render.Input) []*appsv1.DaemonSet {
	t.Helper()
	var all []*appsv1.DaemonSet
	for _, object := range objects(t, in) {
		if ds, ok := object.(*appsv1.DaemonSet); ok && strings.HasPrefix(ds.Name, "tessera-driver-") {
			all = append(all, ds)
		}
	}
	return all
}

// images are those of the drivers, in order.
func images(t testing.TB, in render.Input) []string {
	t.Helper()
	var all []string
	for _, ds := range driverSets(t, in) {
		all = append(all, ds.Spec.Template.Spec.Containers[0].Image)
	}
	slices.Sort(all)
	return all
}

// TestProbeExaminesTheRuntimeOfTheToolkit checks that --runtime-endpoint in toolkit.args applies to the readiness probe.
func TestProbeExaminesTheRuntimeOfTheToolkit(t *testing.T) {
	for name, args := range map[string][]string{
		"--runtime-endpoint=/run/x.sock": {"--runtime-endpoint=/run/x.sock"}, "--runtime-endpoint /run/x.sock": {"-v=4", "--runtime-endpoint", "/run/x.sock"},
		"": {"--runtime-endpoint"},
	} {
		in := plain()
		in.Policy.Spec.Toolkit.Args = args
		objects, err := render.Objects(in)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(objects, func(o client.Object) bool { return o.GetName() == render.OperandToolkit })
		probe := objects[i].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].ReadinessProbe.Exec.Command
		if got := strings.Join(probe, " "); !strings.Contains(got, name+" --check") || name == "" && strings.Contains(got, "--runtime-endpoint") {
			t.Errorf("%q: the probe is %s", args, got)
		}
	}
}
