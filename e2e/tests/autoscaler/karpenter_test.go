package autoscaler

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unique"

	"github.com/go-logr/logr"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/scheduling/dynamicresources"
	"sigs.k8s.io/yaml"
)

// root is the root of the repository.
const root = "../../.."

// request is a request of a claim, and what its devices must have in common.
type request struct {
	class string
	// selector is a condition on the attributes of Tessera's domain, which are in the variable a; empty for none.
	selector string
	count    int64
	// equal is the attribute of matchAttribute; empty for none.
	equal resourceapi.FullyQualifiedName
}

// TestKarpenter lets Karpenter's allocator place claims on a node that does not exist, of which it has the template. The numbers are those of the hardware.
func TestKarpenter(t *testing.T) {
	const (
		gpu, mig = "gpu.tessera.dev", "mig.tessera.dev"
		small    = "a.profile == '1g.10gb'"
		parent   = "gpu.tessera.dev/parentUUID"
	)
	log.SetLogger(logr.Discard())
	tessera := filepath.Join(t.TempDir(), "tessera")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tessera, "./cmd/tessera")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for name, test := range map[string]struct {
		machine string
		request request
		// fits is the number of such claims that one node holds.
		fits int
	}{
		"whole GPUs":                     {"h100x8", request{gpu, "", 1, ""}, 8},
		"all GPUs of a node":             {"h100x8", request{gpu, "", 8, ""}, 1},
		"more than a node has":           {"h100x8", request{gpu, "", 9, ""}, 0},
		"one NUMA node":                  {"h100x8", request{gpu, "", 4, "resource.kubernetes.io/numaNode"}, 2},
		"more than a NUMA node":          {"h100x8", request{gpu, "", 5, "resource.kubernetes.io/numaNode"}, 0},
		"one link island":                {"h100x8", request{gpu, "", 8, "gpu.tessera.dev/linkIsland"}, 1},
		"one PCIe root, which has one":   {"h100x8", request{gpu, "", 2, "resource.kubernetes.io/pcieRoot"}, 0},
		"one NVLink fabric":              {"gb200x4", request{gpu, "", 4, "gpu.tessera.dev/clique"}, 1},
		"no NVLink fabric":               {"h100x8", request{gpu, "", 2, "gpu.tessera.dev/clique"}, 0},
		"smallest MIG devices":           {"h100x1", request{mig, small, 1, ""}, 7},
		"MIG devices of 8 GPUs":          {"h100x8", request{mig, "a.profile == '3g.40gb'", 1, ""}, 16},
		"two MIG devices of one GPU":     {"h100x1", request{mig, small, 2, parent}, 3},
		"seven MIG devices of one GPU":   {"h100x8", request{mig, small, 7, parent}, 8},
		"eight MIG devices of one GPU":   {"h100x8", request{mig, small, 8, parent}, 0},
		"GPUs with compute capability 9": {"h100x8", request{gpu, "a.cudaComputeCapability.isGreaterThan(semver('8.9.0'))", 1, ""}, 8},
		"another product":                {"h100x8", request{gpu, "a.productName.contains('A100')", 1, ""}, 0},
		"several products":               {"a30x4l40sx4", request{gpu, "a.productName.contains('L40S')", 1, ""}, 4},
		// A node holds 10. Karpenter 1.14 charges the counters of a device for each of its claims, kube-scheduler for the first.
		"shares": {"t4x1", request{"timeshare.tessera.dev", "", 1, ""}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := newNode(t, tessera, test.machine)
			fits := 0
			for ; fits <= test.fits; fits++ {
				if !node.place(t, test.request.claim(fits)) {
					break
				}
			}
			if fits != test.fits {
				t.Errorf("%d claims fit, want %d", fits, test.fits)
			}
		})
	}
}

// claim returns a claim with the request.
func (r request) claim(number int) *resourceapi.ResourceClaim {
	exact := &resourceapi.ExactDeviceRequest{DeviceClassName: r.class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: r.count}
	if r.selector != "" {
		expression := strings.ReplaceAll(r.selector, "a.", "device.attributes['gpu.tessera.dev'].")
		exact.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", number), Namespace: "default"}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "devices", Exactly: exact}}
	if r.equal != "" {
		c.Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &r.equal}}
	}
	return c
}

// instanceType is the name of the only instance type.
const instanceType, nodePool = "machine", "pool"

// node is a node that Karpenter would create.
type node struct {
	templates []dynamicresources.ResourceSlice
	allocator *dynamicresources.Allocator
}

// newNode returns a node of the machine.
func newNode(t *testing.T, tessera, machine string) *node {
	t.Helper()
	resources := template(t, tessera, machine)
	n := &node{}
	for _, s := range resources.ResourceSliceTemplates {
		n.templates = append(n.templates, dynamicresources.NewTemplateSlice(s))
	}
	bindings := dynamicresources.BuildAttributeBindings(map[string][]*cloudprovider.InstanceType{
		nodePool: {{Name: instanceType, DynamicResources: resources}},
	})
	n.allocator = dynamicresources.NewAllocator(nil, dynamicresources.AllocatedDeviceState{}, bindings, classes(t), nil)
	return n
}

// place allocates the claim on the node, and reports whether it fits.
func (n *node) place(t *testing.T, claim *resourceapi.ResourceClaim) bool {
	t.Helper()
	result, err := n.allocator.Allocate(t.Context(), n, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Log(err)
		return false
	}
	result.Allocation.Commit(t.Context())
	return true
}

// The methods of dynamicresources.NodeClaim.

func (n *node) ID() dynamicresources.NodeClaimID        { return unique.Make("node") }
func (n *node) NodeName() string                        { return "" }
func (n *node) NodePoolID() dynamicresources.NodePoolID { return unique.Make(nodePool) }
func (n *node) Requirements() scheduling.Requirements   { return scheduling.NewRequirements() }

func (n *node) InstanceTypes() []dynamicresources.InstanceTypeID {
	return []dynamicresources.InstanceTypeID{unique.Make(instanceType)}
}

func (n *node) ResourceSlices() map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice {
	return map[dynamicresources.InstanceTypeID][]dynamicresources.ResourceSlice{unique.Make(instanceType): n.templates}
}

// template returns what `tessera template --karpenter` prints, as Karpenter's type. Its names are handles, which have no encoding.
func template(t *testing.T, tessera, machine string) cloudprovider.DynamicResources {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tessera, "template", "--machine", machine, "--karpenter", "-o", "json")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	var printed struct {
		ResourceSliceTemplates []struct {
			Driver         string
			Pool           struct{ Name string }
			Devices        []resourceapi.Device
			SharedCounters []resourceapi.CounterSet
		}
		AttributeBindings []struct {
			Attribute resourceapi.QualifiedName
			Devices   []struct{ Driver, Pool, Device string }
		}
	}
	if err := json.Unmarshal(text, &printed); err != nil {
		t.Fatal(err)
	}
	var r cloudprovider.DynamicResources
	for _, s := range printed.ResourceSliceTemplates {
		part := &cloudprovider.ResourceSliceTemplate{
			Driver: unique.Make(s.Driver), Pool: cloudprovider.ResourcePool{Name: unique.Make(s.Pool.Name)}, SharedCounters: s.SharedCounters,
		}
		for _, d := range s.Devices {
			part.Devices = append(part.Devices, cloudprovider.Device{
				Name: unique.Make(d.Name), Attributes: d.Attributes, Capacity: d.Capacity, ConsumesCounters: d.ConsumesCounters,
				AllowMultipleAllocations: d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations,
			})
		}
		r.ResourceSliceTemplates = append(r.ResourceSliceTemplates, part)
	}
	for _, b := range printed.AttributeBindings {
		binding := &cloudprovider.AttributeBinding{Attribute: b.Attribute}
		for _, d := range b.Devices {
			binding.Devices = append(binding.Devices, cloudprovider.DeviceID{Driver: unique.Make(d.Driver), Pool: unique.Make(d.Pool), Device: unique.Make(d.Device)})
		}
		r.AttributeBindings = append(r.AttributeBindings, binding)
	}
	return r
}

// classes returns a client with the DeviceClasses that Tessera installs.
func classes(t *testing.T) client.Client {
	t.Helper()
	text, err := os.ReadFile(root + "/deployments/deviceclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := resourceapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		class := &resourceapi.DeviceClass{}
		if err := yaml.Unmarshal([]byte(document), class); err != nil {
			t.Fatal(err)
		}
		builder.WithObjects(class)
	}
	return builder.Build()
}
