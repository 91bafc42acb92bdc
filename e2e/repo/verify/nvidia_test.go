package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// component is the folder of the kustomize component for NVIDIA's driver name.
const component = "deployments/nvidia"

// withComponent returns the shipped objects as the component changes them.
func withComponent(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), component, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct {
		Patches []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	if err := sigsyaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	objects := manifests(t, "deployments")
	for _, folder := range []string{schedulerCommon, schedulerAdditional} {
		for file, more := range manifests(t, folder) {
			objects["scheduler/"+file] = more
		}
	}
	for _, patch := range kustomization.Patches {
		object := patched(objects, patch.Target.Kind, patch.Target.Name)
		if object == nil {
			t.Errorf("the component patches %s %s, which is not there", patch.Target.Kind, patch.Target.Name)
			continue
		}
		var operations []struct {
			Op, Path string
			Value    any
		}
		if err := sigsyaml.Unmarshal([]byte(patch.Patch), &operations); err != nil {
			t.Fatal(err)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range operations {
			if err := operate(content, o.Op, strings.Split(strings.TrimPrefix(o.Path, "/"), "/"), o.Value); err != nil {
				t.Errorf("%s %s: %s %s: %v", patch.Target.Kind, patch.Target.Name, o.Op, o.Path, err)
			}
		}
		changed, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		reflect.ValueOf(object).Elem().SetZero()
		if err := json.Unmarshal(changed, object); err != nil {
			t.Fatal(err)
		}
	}
	for file, more := range manifests(t, component) {
		objects["nvidia/"+file] = more
	}
	return objects
}

// patched returns the object that a patch is for.
func patched(objects map[string][]runtime.Object, kind, name string) runtime.Object {
	for _, file := range objects {
		for _, object := range file {
			named, ok := object.(metav1.Object)
			if ok && named.GetName() == name && object.GetObjectKind().GroupVersionKind().Kind == kind {
				return object
			}
		}
	}
	return nil
}

// operate carries out one operation of a JSON Patch on an object. The paths of the component have no
// escaped characters.
func operate(value any, op string, path []string, argument any) error {
	for ; len(path) > 1; path = path[1:] {
		value = child(value, path[0])
	}
	if op == "test" {
		if got := child(value, path[0]); !reflect.DeepEqual(got, argument) {
			return fmt.Errorf("%v is there", got)
		}
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v[path[0]]; !ok {
			return fmt.Errorf("nothing is there")
		}
		if op == "remove" {
			delete(v, path[0])
			return nil
		}
		v[path[0]] = argument
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(v) {
			return fmt.Errorf("nothing is there")
		}
		v[i] = argument
	default:
		return fmt.Errorf("%T is there", value)
	}
	return nil
}

func child(value any, key string) any {
	switch v := value.(type) {
	case map[string]any:
		return v[key]
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// nvidiaLab is a lab of the machines as agents with the component publish it.
func nvidiaLab(t *testing.T, objects map[string][]runtime.Object, machines ...string) *cluster {
	t.Helper()
	config, err := v1alpha1.Load([]byte(one[*corev1.ConfigMap](t, objects).Data["node.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if config.DriverName != v1alpha1.NVIDIADriverName || config.Attributes != v1alpha1.Full {
		t.Errorf("driver %s with attributes %s, want NVIDIA's with all of them", config.DriverName, config.Attributes)
	}
	offer, err := config.Offer()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, newClasses(find[*resourceapi.DeviceClass](objects)))
	c.nodes, c.published = nil, nil
	for i, machine := range machines {
		node := gputest.Node(t, machine)
		node.Name = fmt.Sprintf("node%d", i+1)
		pool, err := wire.Encode(node, wire.Options{Driver: config.DriverName, Offer: offer, Full: config.Attributes == v1alpha1.Full})
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}})
		for _, slice := range pool.Slices {
			c.published = append(c.published, &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
				Driver: config.DriverName, NodeName: &node.Name,
				Pool:           resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				SharedCounters: slice.SharedCounters, Devices: slice.Devices,
			}})
		}
	}
	return c
}

// TestNVIDIAExamplesCanBeServed allocates every example that is written for NVIDIA's driver.
func TestNVIDIAExamplesCanBeServed(t *testing.T) {
	shipped := withComponent(t)
	folder := path.Join(component, "examples")
	examples, err := expect.Load(os.DirFS(filepath.Join(root(t), folder)))
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) < 12 {
		t.Errorf("%d examples, want at least 12", len(examples))
	}
	own := manifests(t, folder)
	for _, example := range examples {
		t.Run(example.File, func(t *testing.T) {
			objects := map[string][]runtime.Object{example.File: own[example.File]}
			for _, subject := range example.Subjects {
				if subject.Kind != "Pod" {
					continue // refused before there is anything to serve
				}
				c := nvidiaLab(t, shipped, "h100x8", "a30x4l40sx4")
				for _, class := range find[*resourceapi.DeviceClass](objects) {
					c.classes[class.Name] = class
				}
				if subject.Expectation.Phase == expect.Pending {
					if len(c.allocate(t, claimsOf(t, c, objects, podSpec(t, objects, subject)))) > 0 {
						t.Errorf("%s can be served", subject)
					}
					continue
				}
				serve(t, c, objects, subject)
			}
		})
	}
}

// TestNVIDIAClasses checks that every class serves devices of NVIDIA's driver name and of no other, and
// that no extended resource belongs to two classes.
func TestNVIDIAClasses(t *testing.T) {
	objects := withComponent(t)
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, machine := range machines {
		names = append(names, machine.Name)
	}
	c := nvidiaLab(t, objects, names...)
	c.published = append(c.published, sandboxNode(t, "sandbox", wire.Options{Driver: v1alpha1.NVIDIADriverName, Full: true})...)
	holder := map[string]string{}
	for name, class := range c.classes {
		served := false
		for _, slice := range c.published {
			for _, device := range slice.Spec.Devices {
				served = served || c.classes.matches(t, class, slice.Spec.Driver, device)
				if c.classes.matches(t, class, v1alpha1.DriverName, device) {
					t.Fatalf("class %s serves a device of %s", name, v1alpha1.DriverName)
				}
			}
		}
		if !served {
			t.Errorf("class %s serves no device of any machine in the catalogue", name)
		}
		if resource := class.Spec.ExtendedResourceName; resource != nil {
			if other, taken := holder[*resource]; taken {
				t.Errorf("classes %s and %s both have the extended resource %s", other, name, *resource)
			}
			holder[*resource] = name
		}
	}
	if holder["nvidia.com/gpu"] != "gpu.nvidia.com" {
		t.Errorf("class %q has the extended resource nvidia.com/gpu", holder["nvidia.com/gpu"])
	}
}
