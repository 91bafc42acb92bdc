package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
)

// What keeps the installer from what it decided stands in the node's message, once and in the same words, for as long as it does.
func TestObstaclesAreTold(t *testing.T) {
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{BootID: "b"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	gpunode := &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       v1alpha1.GPUNodeSpec{Driver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverContainer, Digest: "0123456789abcdef"}},
		Status:     v1alpha1.GPUNodeStatus{Hardware: &v1alpha1.HardwareStatus{BootID: "b", GPUs: 1, OS: "debian12", CDI: true}},
	}
	denials := []error{errors.New("denied by a policy at 12:00"), errors.New("denied by a policy at 12:01"), errors.New("denied by a policy at 12:02")}
	c := interceptor.NewClient(indexedClient(t, policy, node, gpunode), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, is := o.(*corev1.Node); is && len(denials) > 0 {
				err := denials[0]
				denials = denials[1:]
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
	})
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	r := &nodeReconciler{
		Cluster: action.Cluster{Client: c, Live: c, Namespace: "tessera-system"}, drainer: drainer{live: c, refused: newRefusedEvictions()},
		obstacles: NewObstacles(), recorder: events.NewFakeRecorder(100), metrics: m, pools: NewPools(),
	}
	for i, want := range []string{"", "denied by a policy at 12:00", "denied by a policy at 12:00", "denied by a policy at 12:00", ""} {
		failing := len(denials) > 0
		if _, err := r.Reconcile(t.Context(), Request("n")); (err != nil) != failing {
			t.Fatalf("step %d: got error %v", i, err)
		}
		now := &v1alpha1.GPUNode{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gpunode), now); err != nil {
			t.Fatal(err)
		}
		if got := now.Status.Message; !strings.HasSuffix(got, want) || strings.Count(got, "denied") != strings.Count(want, "denied") {
			t.Errorf("step %d: the message is %q, want one that ends with %q", i, got, want)
		}
	}
}

// indexedClient is a client of a cluster with these objects, with the installer's indexes.
func indexedClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.GPUNode{}).
		WithIndex(&resourceapi.ResourceSlice{}, resourceapi.ResourceSliceSelectorNodeName, func(o client.Object) []string {
			slice, ok := o.(*resourceapi.ResourceSlice)
			if !ok || slice.Spec.NodeName == nil {
				return nil
			}
			return []string{*slice.Spec.NodeName}
		}).
		WithIndex(&corev1.Pod{}, IndexPodNode, PodNodes).WithIndex(&resourceapi.ResourceClaim{}, IndexClaimPool, ClaimPools).Build()
}
