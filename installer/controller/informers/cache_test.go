package informers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// The cache has namespaced objects of one namespace, and only the installer's of the kinds that others create too.
func TestCacheOptions(t *testing.T) {
	for object, by := range CacheOptions("own", true).ByObject {
		_, own := by.Namespaces["own"]
		labeled := by.Label != nil && by.Label.String() == render.LabelManagedBy+"="+render.ManagedBy
		switch object.(type) {
		case *corev1.Pod, *corev1.ConfigMap, *corev1.Secret:
			_, isConfigMap := object.(*corev1.ConfigMap)
			if !own || labeled || (by.Transform == nil) != isConfigMap {
				t.Errorf("%T: in the own namespace %t, labeled %t, trimmed %t", object, own, labeled, by.Transform != nil)
			}
		case *corev1.Node, *resourceapi.ResourceClaim:
			if by.Transform == nil || len(by.Namespaces) > 0 {
				t.Errorf("%T: %+v", object, by)
			}
		default:
			if !labeled {
				t.Errorf("%T of others is in the cache", object)
			}
		}
	}
}

// A Node keeps what the installer reads; a heartbeat is no change. Objects of other kinds stay as they are.
func TestTrimNode(t *testing.T) {
	node := func(heartbeat int64) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x": "y"}, ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: action.Manager}, {Manager: "kubelet"}, {Manager: action.Manager, Subresource: "status"},
			}},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{BootID: "b", KernelVersion: "6.8", KubeletVersion: "v1.37.2"},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(heartbeat, 0)}, {Type: corev1.NodeDiskPressure},
				},
				Allocatable:     corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("8")},
				RuntimeHandlers: []corev1.NodeRuntimeHandler{{Name: "crun", Features: &corev1.NodeRuntimeHandlerFeatures{}}},
			},
		}
	}
	first, err := TrimNode(node(1))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := TrimNode(node(2))
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("a heartbeat is a change:\n%s", diff)
	}
	got := first.(*corev1.Node)
	if got.Status.NodeInfo != (corev1.NodeSystemInfo{BootID: "b", KubeletVersion: "v1.37.2"}) || len(got.Status.Conditions) != 1 || len(got.Status.Allocatable) != 1 || len(got.ManagedFields) != 1 || got.Annotations != nil || got.Labels["a"] != "b" {
		t.Errorf("kept %+v", got)
	}
	if len(got.Status.RuntimeHandlers) != 1 || got.Status.RuntimeHandlers[0] != (corev1.NodeRuntimeHandler{Name: "crun"}) {
		t.Errorf("kept the runtime handlers %v", got.Status.RuntimeHandlers)
	}
	for _, transform := range []func(any) (any, error){TrimPod, TrimNode, HashSecretValues, TrimClaim("own")} {
		if other, err := transform("no object"); err != nil || other != "no object" {
			t.Errorf("another object becomes %v, error %v", other, err)
		}
	}
}

// Of a Secret the cache has hashes, which change with the values.
func TestHashSecretValues(t *testing.T) {
	hash := func(value string) []byte {
		kept, err := HashSecretValues(&corev1.Secret{Data: map[string][]byte{"k": []byte(value)}})
		if err != nil {
			t.Fatal(err)
		}
		return kept.(*corev1.Secret).Data["k"]
	}
	if a := hash("a"); string(a) == "a" || cmp.Equal(a, hash("b")) || !cmp.Equal(a, hash("a")) {
		t.Errorf("the value becomes %q", a)
	}
}

// A claim keeps devices and reservations; only of the installer's validations also labels and owners.
func TestTrimClaim(t *testing.T) {
	claim := func(namespace, name string) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", Labels: map[string]string{render.LabelName: name}}}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
		c.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: &corev1.NodeSelector{}}
		c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
			{Request: "r", Driver: "d", Pool: "n-d", Device: "x"}, {Driver: "d", Pool: "m-d", AdminAccess: new(true)},
		}
		return c
	}
	for _, test := range []struct {
		namespace, name string
		labels          bool
	}{{"own", render.OperandValidation, true}, {"own", "other", false}, {"users", render.OperandValidation, false}} {
		kept, err := TrimClaim("own")(claim(test.namespace, test.name))
		if err != nil {
			t.Fatal(err)
		}
		got := kept.(*resourceapi.ResourceClaim)
		if (got.Labels != nil) != test.labels || len(got.Status.ReservedFor) != 1 || got.Status.Allocation.NodeSelector != nil || got.Status.Allocation.Devices.Results[0].Request != "" {
			t.Errorf("%s/%s keeps %+v", test.namespace, test.name, got)
		}
		if diff := cmp.Diff([]string{"m-d", "n-d"}, ClaimPools(got)); diff != "" {
			t.Error(diff)
		}
	}
	for object, want := range map[client.Object][]string{&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}: {"n"}, &corev1.Pod{}: nil, &corev1.Node{}: nil} {
		if diff := cmp.Diff(want, PodNodes(object)); diff != "" {
			t.Error(diff)
		}
	}
}
