package verify

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// compiled caches compiled selectors, which cost more than evaluating them.
var compiled = cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})

// labNode returns a node with a machine of the catalogue, and its slices as an agent with the default
// configuration publishes them.
func labNode(t *testing.T, name, machine string) (*corev1.Node, []*resourceapi.ResourceSlice) {
	t.Helper()
	config := v1alpha1.Default()
	offer, err := config.Offer()
	if err != nil {
		t.Fatal(err)
	}
	node := gputest.Node(t, machine)
	node.Name = name
	pool, err := wire.Encode(node, wire.Options{Driver: config.DriverName, Offer: offer})
	if err != nil {
		t.Fatal(err)
	}
	var slices []*resourceapi.ResourceSlice
	for i, slice := range pool.Slices {
		slices = append(slices, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02x-%s", i, name)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: config.DriverName, NodeName: &name,
				Pool:           resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				SharedCounters: slice.SharedCounters, Devices: slice.Devices,
			},
		})
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, slices
}

// sandboxNode returns the slices of a node with two GPUs that are for virtual machines.
func sandboxNode(t *testing.T, name string, options wire.Options) []*resourceapi.ResourceSlice {
	t.Helper()
	node := gpu.Node{Name: name, GPUs: []gpu.GPU{
		{PCI: "0000:17:00.0", Product: "NVIDIA H100 80GB HBM3", MemoryBytes: 81559 << 20, IOMMUGroup: "31", PCIeRoot: "pci0000:16"},
		{PCI: "0000:2a:00.0", Index: 1, Product: "NVIDIA GPU 20f1", IOMMUGroup: "32", NUMA: -1},
	}}
	options.Offer = gpu.Offer{Shapes: []gpu.Shape{gpu.VFIO}}
	pool, err := wire.Encode(node, options)
	if err != nil {
		t.Fatal(err)
	}
	var slices []*resourceapi.ResourceSlice
	for _, slice := range pool.Slices {
		slices = append(slices, &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: options.Driver, NodeName: &name,
			Pool:           resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			SharedCounters: slice.SharedCounters, Devices: slice.Devices,
		}})
	}
	return slices
}

// matches reports whether a class would serve the device.
func (c classes) matches(t *testing.T, class *resourceapi.DeviceClass, driver string, device resourceapi.Device) bool {
	t.Helper()
	for _, selector := range class.Spec.Selectors {
		program := compiled.GetOrCompile(selector.CEL.Expression)
		if program.Error != nil {
			t.Fatalf("class %s: %v", class.Name, program.Error)
		}
		input := cel.Device{Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes, Capacity: device.Capacity}
		ok, _, err := program.DeviceMatches(t.Context(), input)
		if err != nil {
			t.Fatalf("class %s, device %s: %v", class.Name, device.Name, err)
		}
		if !ok {
			return false
		}
	}
	return true
}

// classes are DeviceClasses by name.
type classes map[string]*resourceapi.DeviceClass

func newClasses(list []*resourceapi.DeviceClass) classes {
	byName := classes{}
	for _, class := range list {
		byName[class.Name] = class
	}
	return byName
}

// List implements the allocator's lister of classes.
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var list []*resourceapi.DeviceClass
	for _, class := range c {
		list = append(list, class)
	}
	return list, nil
}

// Get implements the allocator's lister of classes.
func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("DeviceClass %s: not found", name)
}

// TestClassesServeTheirDevices checks on every machine of the catalogue that each published device is
// served by the class of its shape and, if it is a MIG device, by the class of its profile, and by no
// other.
func TestClassesServeTheirDevices(t *testing.T) {
	all := newClasses(find[*resourceapi.DeviceClass](manifests(t, "deployments")))
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	fleet := map[string][]*resourceapi.ResourceSlice{"for virtual machines": sandboxNode(t, "node1", wire.Options{Driver: v1alpha1.DriverName})}
	for _, machine := range machines {
		_, fleet[machine.Name] = labNode(t, "node1", machine.Name)
	}
	for machine, published := range fleet {
		for _, slice := range published {
			for _, device := range slice.Spec.Devices {
				want := wantedClasses(device)
				for name, class := range all {
					got := all.matches(t, class, slice.Spec.Driver, device)
					served[name] = served[name] || got
					if got != want(class) {
						t.Errorf("%s: class %s serves %s: %t, want %t", machine, name, device.Name, got, want(class))
					}
				}
				if all.matches(t, all["gpu.tessera.dev"], "gpu.example.com", device) {
					t.Fatalf("class gpu.tessera.dev serves another driver's %s", device.Name)
				}
			}
		}
	}
	for name := range all {
		if !served[name] {
			t.Errorf("class %s serves no device of any machine in the catalogue", name)
		}
	}
}

// wantedClasses returns the classes that must serve the device.
func wantedClasses(device resourceapi.Device) func(*resourceapi.DeviceClass) bool {
	resource := ""
	shape := *device.Attributes[wire.Type].StringValue
	switch shape {
	case gpu.Whole.String():
		resource = "nvidia.com/gpu"
	case gpu.MIG.String():
		resource = "nvidia.com/mig-" + strings.ReplaceAll(*device.Attributes[wire.Profile].StringValue, "+", ".")
	}
	return func(class *resourceapi.DeviceClass) bool {
		if class.Spec.ExtendedResourceName == nil {
			return class.Name == shape+".tessera.dev"
		}
		return *class.Spec.ExtendedResourceName == resource
	}
}

// TestExtendedResourcesAreUnique: of two classes with one name the newest would take precedence
// without a warning.
func TestExtendedResourcesAreUnique(t *testing.T) {
	holder := map[string]string{}
	for _, class := range find[*resourceapi.DeviceClass](manifests(t, "deployments")) {
		if name := class.Spec.ExtendedResourceName; name != nil {
			if other, taken := holder[*name]; taken {
				t.Errorf("classes %s and %s both have the extended resource %s", other, class.Name, *name)
			}
			holder[*name] = class.Name
		}
	}
}
