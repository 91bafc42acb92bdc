package verify

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// cluster is the published devices of the default lab and their allocations.
type cluster struct {
	nodes     []*corev1.Node
	published []*resourceapi.ResourceSlice
	classes   classes
	taken     sets.Set[structured.DeviceID]
	// shared are the shares of devices that are allocated more than once.
	shared []resourceapi.DeviceRequestAllocationResult
}

func newCluster(t *testing.T, classes classes) *cluster {
	t.Helper()
	c := &cluster{classes: classes, taken: sets.New[structured.DeviceID]()}
	for i, machine := range []string{"h100x8", "a30x4l40sx4"} {
		node, slices := labNode(t, fmt.Sprintf("node%d", i+1), machine)
		c.nodes = append(c.nodes, node)
		c.published = append(c.published, slices...)
	}
	return c
}

// allocate allocates devices of one node to all claims, as kube-scheduler would, and keeps them
// allocated. It returns nothing when no node has enough devices.
func (c *cluster) allocate(t *testing.T, claims []*resourceapi.ResourceClaim) []expect.Grant {
	t.Helper()
	features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true}
	allocator, err := structured.NewAllocator(t.Context(), features, c.state(), c.classes, c.published, compiled)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range c.nodes {
		results, err := allocator.Allocate(t.Context(), node, claims)
		if err != nil {
			t.Fatal(err)
		}
		var devices []expect.Grant
		for _, result := range results {
			for _, device := range result.Devices.Results {
				c.take(device)
				devices = append(devices, c.device(t, device))
			}
		}
		if len(devices) > 0 {
			return devices
		}
	}
	return nil
}

// take records an allocation. Admin access takes no device.
func (c *cluster) take(device resourceapi.DeviceRequestAllocationResult) {
	switch {
	case ptr.Deref(device.AdminAccess, false):
	case device.ShareID != nil:
		c.shared = append(c.shared, device)
	default:
		c.taken.Insert(structured.MakeDeviceID(device.Driver, device.Pool, device.Device))
	}
}

// state returns the allocated devices for the allocator.
func (c *cluster) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         c.taken.Clone(),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, r := range c.shared {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	return state
}

func (c *cluster) device(t *testing.T, result resourceapi.DeviceRequestAllocationResult) expect.Grant {
	t.Helper()
	for _, slice := range c.published {
		for _, device := range slice.Spec.Devices {
			if slice.Spec.Pool.Name == result.Pool && device.Name == result.Device {
				return expect.Describe(result.Driver, result.Pool, device)
			}
		}
	}
	t.Fatalf("%s/%s was allocated and is not published", result.Pool, result.Device)
	return expect.Grant{}
}

// TestExamplesCanBeServed allocates every example on an empty default lab, subject by subject, with the
// allocator that kube-scheduler uses, and compares the devices with the expectation in the manifest.
// Rejections by the API server are not covered.
func TestExamplesCanBeServed(t *testing.T) {
	examples, err := expect.Load(os.DirFS(filepath.Join(root(t), "deployments", "examples")))
	if err != nil {
		t.Fatal(err)
	}
	shipped := find[*resourceapi.DeviceClass](manifests(t, "deployments"))
	objects := manifests(t, path.Join("deployments", "examples"))
	for _, example := range examples {
		t.Run(example.File, func(t *testing.T) {
			own := map[string][]runtime.Object{example.File: objects[example.File]}
			known := newClasses(append(find[*resourceapi.DeviceClass](own), shipped...))
			c := newCluster(t, known)
			for _, subject := range example.Subjects {
				switch subject.Expectation.Phase {
				case expect.Refused:
				case expect.Pending:
					if devices := c.allocate(t, claimsOf(t, c, own, podSpec(t, own, subject))); len(devices) > 0 {
						t.Errorf("%s: got %s, must stay Pending", subject, devices[0])
					}
				case expect.Succeeded, expect.Running, expect.Failed, expect.Accepted:
					serve(t, c, own, subject)
				}
			}
		})
	}
}

// TestFirstClaimCanBeServed does the same for the claim in the README.
func TestFirstClaimCanBeServed(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```yaml\n")
	manifest, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("the README shows no manifest")
	}
	own := map[string][]runtime.Object{"README.md": decode(t, "README.md", manifest)}
	c := newCluster(t, newClasses(find[*resourceapi.DeviceClass](manifests(t, "deployments"))))
	if len(c.allocate(t, claimsOf(t, c, own, one[*corev1.Pod](t, own).Spec))) != 1 {
		t.Error("the claim in the README got no device")
	}
}

// serve allocates a pod of the subject, or as many pods as its expectation has.
func serve(t *testing.T, c *cluster, own map[string][]runtime.Object, subject expect.Subject) {
	t.Helper()
	spec := podSpec(t, own, subject)
	pods := max(subject.Expectation.Over, 1)
	for range pods {
		devices := c.allocate(t, claimsOf(t, c, own, spec))
		if len(devices) == 0 {
			t.Fatalf("%s: no node of the default lab can serve it", subject)
		}
		for _, complaint := range subject.Expectation.Foresee(devices) {
			t.Errorf("%s: %s", subject, complaint)
		}
	}
	if subject.Expectation.Over > 0 {
		if extra := c.allocate(t, claimsOf(t, c, own, spec)); len(extra) > 0 {
			t.Errorf("%s: one pod more than %d got a device too: %s", subject, pods, extra[0])
		}
	}
}

func podSpec(t *testing.T, own map[string][]runtime.Object, subject expect.Subject) corev1.PodSpec {
	t.Helper()
	for _, pod := range find[*corev1.Pod](own) {
		if subject.Kind == "Pod" && pod.Name == subject.Name {
			return pod.Spec
		}
	}
	for _, job := range find[*batchv1.Job](own) {
		if subject.Kind == "Job" && job.Name == subject.Name {
			return job.Spec.Template.Spec
		}
	}
	for _, deployment := range find[*appsv1.Deployment](own) {
		if subject.Kind == "Deployment" && deployment.Name == subject.Name {
			return deployment.Spec.Template.Spec
		}
	}
	t.Fatalf("%s: not in its manifest", subject)
	return corev1.PodSpec{}
}

// claimsOf returns the claims that a pod of the spec would have.
func claimsOf(t *testing.T, c *cluster, own map[string][]runtime.Object, spec corev1.PodSpec) []*resourceapi.ResourceClaim {
	t.Helper()
	var claims []*resourceapi.ResourceClaim
	add := func(name string, spec resourceapi.ResourceClaimSpec) {
		complete := spec.DeepCopy()
		for i := range complete.Devices.Requests {
			defaults(&complete.Devices.Requests[i])
		}
		claims = append(claims, &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: *complete})
	}
	for _, wanted := range spec.ResourceClaims {
		for _, template := range find[*resourceapi.ResourceClaimTemplate](own) {
			if wanted.ResourceClaimTemplateName != nil && template.Name == *wanted.ResourceClaimTemplateName {
				add(template.Name, template.Spec.Spec)
			}
		}
		for _, claim := range find[*resourceapi.ResourceClaim](own) {
			if wanted.ResourceClaimName != nil && claim.Name == *wanted.ResourceClaimName {
				add(claim.Name, claim.Spec)
			}
		}
	}
	for _, container := range spec.Containers {
		for name, count := range container.Resources.Limits {
			for _, class := range c.classes {
				if extended := class.Spec.ExtendedResourceName; extended != nil && *extended == string(name) {
					request := resourceapi.DeviceRequest{Name: "extended", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name, Count: count.Value()}}
					add("extended-"+container.Name+"-"+class.Name, resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}})
				}
			}
		}
	}
	if len(claims) == 0 {
		t.Fatal("the pod claims nothing that its manifest or a class provides")
	}
	return claims
}

// defaults fills in the API server's defaults.
func defaults(request *resourceapi.DeviceRequest) {
	fill := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	if request.Exactly != nil {
		fill(&request.Exactly.AllocationMode, &request.Exactly.Count)
	}
	for i := range request.FirstAvailable {
		fill(&request.FirstAvailable[i].AllocationMode, &request.FirstAvailable[i].Count)
	}
}
