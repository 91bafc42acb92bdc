package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
)

// What keeps the installer from what it decided is in the node's message, once and in the same words, for as long as it does.
func TestObstaclesAreReported(t *testing.T) {
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
	c := interceptor.NewClient(controllertest.NewClient(t, policy, node, gpunode), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, is := o.(*corev1.Node); is && len(denials) > 0 {
				err := denials[0]
				denials = denials[1:]
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
	})
	r := newReconciler(t, c, c, events.NewFakeRecorder(100))
	for i, want := range []string{"", "denied by a policy at 12:00", "denied by a policy at 12:00", "denied by a policy at 12:00", ""} {
		failing := len(denials) > 0
		if _, err := r.Reconcile(t.Context(), trigger.Request("n")); (err != nil) != failing {
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
