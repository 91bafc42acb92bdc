package expect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func testSlice(generation int64, uuid string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.tessera.dev",
		Pool:   resourceapi.ResourcePool{Name: "node1-gpu.tessera.dev", Generation: generation},
		Devices: []resourceapi.Device{
			{Name: "gpu-a", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type":                              {StringValue: ptr.To("gpu")},
				"uuid":                              {StringValue: ptr.To(uuid)},
				"index":                             {IntValue: ptr.To[int64](3)},
				"driverVersion":                     {VersionValue: ptr.To("580.65.6")},
				"resource.kubernetes.io/pciBusID":   {StringValue: ptr.To("0000:3b:00.0")},
				"resource.kubernetes.io/standalone": {BoolValue: ptr.To(true)},
			}},
			{Name: "gpu-a-mig-19-3", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"gpu.tessera.dev/type": {StringValue: ptr.To("mig")},
				"parentUUID":           {StringValue: ptr.To(uuid)},
				"profile":              {StringValue: ptr.To("1g.10gb")},
			}, Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"multiprocessors":        {Value: resource.MustParse("16")},
				"gpu.tessera.dev/memory": {Value: resource.MustParse("9984Mi")},
			}},
			{Name: "gpu-a-mps", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type": {StringValue: ptr.To("mps")},
				"uuid": {StringValue: ptr.To(uuid)},
			}},
		},
	}}
}

func testClaim(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
	for i := range results {
		results[i].Driver, results[i].Pool = "gpu.tessera.dev", "node1-gpu.tessera.dev"
	}
	return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}},
		Devices: []resourceapi.AllocatedDeviceStatus{{
			Driver: "gpu.tessera.dev", Pool: "node1-gpu.tessera.dev", Device: "gpu-a-mig-19-3",
			Data: &runtime.RawExtension{Raw: []byte(`{"uuid":"MIG-1"}`)},
		}},
	}}
}

func TestGrants(t *testing.T) {
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			NodeName: "node1",
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "named", ResourceClaimName: ptr.To("shared")},
				{Name: "made", ResourceClaimTemplateName: ptr.To("template")},
				{Name: "late", ResourceClaimTemplateName: ptr.To("template")},
			},
			Containers: []corev1.Container{
				{Name: "everything", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "named"}, {Name: "made"}, {Name: "late"}}}},
				{Name: "one", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "made", Request: "slice"}}}},
				{Name: "extended"},
				{Name: "none"},
			},
		},
		Status: corev1.PodStatus{
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "extended-1",
				RequestMappings:   []corev1.ContainerExtendedResourceRequest{{ContainerName: "extended", ResourceName: "nvidia.com/gpu", RequestName: "r0"}},
			},
		},
	}
	claims := []podClaim{
		{"named", testClaim(resourceapi.DeviceRequestAllocationResult{Request: "gpu", Device: "gpu-a"})},
		{"made", testClaim(resourceapi.DeviceRequestAllocationResult{Request: "slice/small", Device: "gpu-a-mig-19-3"}, resourceapi.DeviceRequestAllocationResult{Request: "slices", Device: "gone"})},
		{"late", nil},
		{extendedClaim, testClaim(resourceapi.DeviceRequestAllocationResult{Request: "r0", Device: "gpu-a"}, resourceapi.DeviceRequestAllocationResult{Request: "r1", Device: "gone"})},
	}
	published := []*resourceapi.ResourceSlice{testSlice(2, "GPU-new"), testSlice(1, "GPU-old")}

	whole := Grant{
		Node: "node1", Driver: "gpu.tessera.dev", Pool: "node1-gpu.tessera.dev", Device: "gpu-a", Shape: "gpu", UUID: "GPU-new",
		Attributes: map[string]string{
			"gpu.tessera.dev/type": "gpu", "gpu.tessera.dev/uuid": "GPU-new", "gpu.tessera.dev/index": "3", "gpu.tessera.dev/driverVersion": "580.65.6",
			"resource.kubernetes.io/pciBusID": "0000:3b:00.0", "resource.kubernetes.io/standalone": "true",
		},
	}
	mig := Grant{
		Node: "node1", Driver: "gpu.tessera.dev", Pool: "node1-gpu.tessera.dev", Device: "gpu-a-mig-19-3", Shape: "mig",
		UUID: "MIG-1", Parent: "GPU-new", Profile: "1g.10gb", Multiprocessors: 16, Memory: 9984 << 20,
		Attributes: map[string]string{"gpu.tessera.dev/type": "mig", "gpu.tessera.dev/parentUUID": "GPU-new", "gpu.tessera.dev/profile": "1g.10gb"},
	}
	gone := Grant{Node: "node1", Driver: "gpu.tessera.dev", Pool: "node1-gpu.tessera.dev", Device: "gone"}
	want := map[string][]Grant{
		"everything": {whole, mig, gone},
		"one":        {mig},
		"extended":   {whole},
	}
	if diff := cmp.Diff(want, grants(pod, claims, published)); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
}

// TestShares: what a claim takes of a shared GPU is its own, and so is what the status says about it.
func TestShares(t *testing.T) {
	result := func(id, memory string) resourceapi.DeviceRequestAllocationResult {
		return resourceapi.DeviceRequestAllocationResult{Request: "share", Device: "gpu-a-mps", ShareID: ptr.To(types.UID(id)),
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				"memory": resource.MustParse(memory), "gpu.tessera.dev/compute": resource.MustParse("25"), "shares": resource.MustParse("1"),
			}}
	}
	claim := testClaim(result("1", "4Gi"), result("2", "8Gi"))
	claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: "gpu.tessera.dev", Pool: "node1-gpu.tessera.dev", Device: "gpu-a-mps", ShareID: ptr.To("2"),
		Data: &runtime.RawExtension{Raw: []byte(`{"uuid":"GPU-told","timeSlice":{"interval":"Long","requestedInterval":"Short"}}`)},
	}}
	type seen struct{ id, uuid, label string }
	var got []seen
	for _, g := range (use{}).grants(claim, "node1", []*resourceapi.ResourceSlice{testSlice(1, "GPU-a")}) {
		got = append(got, seen{g.ShareID, g.UUID, g.Label()})
	}
	want := []seen{{"1", "GPU-a", "gpu-a-mps, 4Gi, 25 %"}, {"2", "GPU-told", "gpu-a-mps, 8Gi, 25 %, time slice Long"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	pod := Pod{Containers: []Container{{Grants: []Grant{{Device: "a", ShareID: "1"}, {Device: "a", ShareID: "2"}}}, {Grants: []Grant{{Device: "a", ShareID: "1"}}}}}
	if len(pod.Grants()) != 2 {
		t.Errorf("grants of a pod: got %+v, want two shares", pod.Grants())
	}
}

func TestDescribeRequests(t *testing.T) {
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{
			{Name: "two", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.tessera.dev", Count: 2}},
			{Name: "all", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeAll}},
			{Name: "best", FirstAvailable: []resourceapi.DeviceSubRequest{
				{Name: "big", DeviceClassName: "mig.tessera.dev", Selectors: []resourceapi.DeviceSelector{
					{CEL: &resourceapi.CELDeviceSelector{Expression: "a ==\n  1"}}, {CEL: &resourceapi.CELDeviceSelector{Expression: "b"}},
				}},
				{Name: "small", DeviceClassName: "small.example.com", Count: 3},
			}},
			{Name: "part", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "mps.tessera.dev", Capacity: &resourceapi.CapacityRequirements{
				Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("4Gi"), "compute": resource.MustParse("25")},
			}}},
			{Name: "watch", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "monitor.tessera.dev", AdminAccess: ptr.To(true)}},
		},
		Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Parameters: runtime.RawExtension{Raw: []byte(`{"kind":"GPUConfig"}`)},
		}}}},
		Constraints: []resourceapi.DeviceConstraint{
			{MatchAttribute: ptr.To[resourceapi.FullyQualifiedName]("gpu.tessera.dev/linkIsland")},
			{DistinctAttribute: ptr.To[resourceapi.FullyQualifiedName]("gpu.tessera.dev/uuid")},
		},
	}}}
	want := []string{
		"two: 2 × gpu.tessera.dev",
		"all: all gpu.tessera.dev",
		"best: 1 × mig.tessera.dev where a == 1 and b, else 3 × small.example.com",
		"part: 1 × mps.tessera.dev, compute 25, memory 4Gi",
		"watch: 1 × monitor.tessera.dev, with admin access",
		"all with the same gpu.tessera.dev/linkIsland",
		"each with a different gpu.tessera.dev/uuid",
		`parameters {"kind":"GPUConfig"}`,
	}
	if diff := cmp.Diff(want, describeRequests(claim)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestForesee(t *testing.T) {
	devices := []Grant{
		Describe("gpu.tessera.dev", "p", testSlice(1, "GPU-a").Spec.Devices[0]),
		Describe("gpu.tessera.dev", "p", testSlice(1, "GPU-a").Spec.Devices[1]),
	}
	tests := map[string]struct {
		text string
		want int
	}{
		"between them":     {"containers: {a: {gpus: 1}, b: {mig: [1g.10gb]}}", 0},
		"in one":           {"gpus: 1\nmig: ['1g.*']", 0},
		"too few":          {"gpus: 2\nmig: [1g.10gb]", 1},
		"another profile":  {"gpus: 1\nmig: [2g.20gb]", 1},
		"a log says least": {"log: Test PASSED", 0},
		"no common value":  {"gpus: 1\nmig: ['*']\nmatch: [gpu.tessera.dev/type]", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e, err := Parse(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Foresee(devices); len(got) != test.want {
				t.Errorf("complaints: got %q, want %d", got, test.want)
			}
		})
	}
}
