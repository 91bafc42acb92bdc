package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
)

// Who holds a GPU refuses a removal. A claim is reserved for a moment longer than its pod is there: that refuses nothing.
func TestHeld(t *testing.T) {
	t.Parallel()
	pod := func(name string, uid types.UID, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "user", Name: name, UID: uid}, Status: corev1.PodStatus{Phase: phase}}
	}
	claim := func(driver string, users ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "user", Name: "claim"},
			Status: resourceapi.ResourceClaimStatus{
				Allocation:  &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver}}}},
				ReservedFor: users,
			},
		}
	}
	user := func(name string, uid types.UID) resourceapi.ResourceClaimConsumerReference {
		return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: uid}
	}
	tests := map[string]struct {
		objects []client.Object
		want    []string
	}{
		"pods": {
			objects: []client.Object{claim(v1alpha1.DriverName, user("b", "2"), user("a", "1")), pod("a", "1", corev1.PodRunning), pod("b", "2", corev1.PodPending)},
			want:    []string{"a", "b"},
		},
		"a pod with a claim of another driver": {objects: []client.Object{claim("other", user("a", "1")), pod("a", "1", corev1.PodRunning)}},
		"a pod that is gone":                   {objects: []client.Object{claim(v1alpha1.DriverName, user("a", "1"))}},
		"a pod that is another by now":         {objects: []client.Object{claim(v1alpha1.DriverName, user("a", "1")), pod("a", "2", corev1.PodRunning)}},
		"a pod that has ended":                 {objects: []client.Object{claim(v1alpha1.DriverName, user("a", "1")), pod("a", "1", corev1.PodSucceeded)}},
		"what is no pod": {
			objects: []client.Object{claim(v1alpha1.DriverName, resourceapi.ResourceClaimConsumerReference{APIGroup: "batch.example", Resource: "gangs", Name: "g"})},
			want:    []string{"g"},
		},
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(test.objects...).Build()
			c := &cleaner{Cluster: action.Cluster{Client: api, Live: api, Namespace: "tessera-system"}}
			held, err := c.held(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range held {
				got = append(got, h.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A removal taints the devices of the DRA driver that the agent of each node publishes: that of its pool's configuration, or of the policy's if the pool
// has none.
func TestRemovalTaintsTheDriverOfEachPool(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	policy.Spec.NodeAgent = v1alpha1.NodeAgentSpec{Config: &v1alpha1.NodeConfigSpec{DriverName: "gpu.example.com"}, Pools: []v1alpha1.NodePool{
		{Name: "named", Config: &v1alpha1.NodeConfigSpec{DriverName: "own.example.com"}}, {Name: "unnamed", Config: &v1alpha1.NodeConfigSpec{}}, {Name: "bare"},
	}}
	want := map[string]string{
		"named": "own.example.com", "unnamed": v1alpha1.DriverName, "bare": "gpu.example.com", "default": "gpu.example.com", "removed": "gpu.example.com",
	}
	objects := []client.Object{policy}
	for pool := range want {
		objects = append(objects, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: v1alpha1.GPUNodeSpec{AgentPool: pool}})
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	c := &cleaner{Cluster: action.Cluster{Client: api, Live: api, Namespace: "tessera-system"}}
	if err := c.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for pool := range want {
		rule := &resourceapi.DeviceTaintRule{}
		if err := api.Get(t.Context(), client.ObjectKey{Name: action.TaintRuleName(pool)}, rule); err != nil {
			t.Fatal(err)
		}
		got[pool] = *rule.Spec.DeviceSelector.Driver
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the drivers by pool (-want +got):\n%s", diff)
	}
}
