package policy

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestDiscoveryLooksEverywhere checks that a policy becomes Ready only after the discovery has run on all Ready nodes, and then stays Ready.
func TestDiscoveryLooksEverywhere(t *testing.T) {
	t.Parallel()
	const started, looked = "DaemonSet tessera-discovery has not started yet", "DaemonSet tessera-discovery has not run on 1 of 3 nodes yet; check its pods"
	status := func(desired, available int32) appsv1.DaemonSetStatus {
		return appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: desired, NumberAvailable: available}
	}
	tests := map[string]struct {
		missing bool
		hash    string
		status  appsv1.DaemonSetStatus
		// lost are the nodes that are not Ready, ran those of them whose pod is still reported as Ready.
		lost, ran []string
		// ready is the generation for which the policy is Ready; 0: it is not.
		ready int64
		want  string
	}{
		"there is none":                         {missing: true, want: "DaemonSet tessera-discovery does not exist yet"},
		"it is just written":                    {hash: "old", status: status(3, 3), want: started},
		"without a status":                      {want: started},
		"with a status of an older generation":  {status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 2, NumberAvailable: 2}, want: started},
		"everywhere":                            {status: status(3, 3)},
		"on no node":                            {status: status(0, 0)},
		"not yet on one":                        {status: status(3, 2), want: looked},
		"not on one that is not Ready":          {status: status(3, 2), lost: []string{"a"}},
		"one is not Ready, another not looked":  {status: status(3, 1), lost: []string{"a"}, want: looked},
		"one that is not Ready was looked at":   {status: status(3, 2), lost: []string{"a"}, ran: []string{"a"}, want: looked},
		"a node of others is not Ready":         {status: status(3, 2), lost: []string{"other"}, want: looked},
		"one joins a policy that is Ready":      {status: status(3, 2), ready: 7},
		"one joins by an edit of what is Ready": {status: status(3, 2), ready: 6, want: looked},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := func(hash string) *appsv1.DaemonSet {
				d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
					Namespace: controllertest.Namespace, Name: render.OperandDiscovery, Generation: 2, Annotations: map[string]string{render.AnnotationHash: hash},
				}}
				d.Spec.Template.Spec.NodeSelector = map[string]string{"chosen": "true"}
				return d
			}
			live := set(test.hash)
			live.Status = test.status
			var objects []client.Object
			if !test.missing {
				objects = append(objects, live)
			}
			for _, name := range test.lost {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"chosen": "true"}}}
				if name == "other" {
					node.Labels = nil
				}
				objects = append(objects, node)
			}
			for _, name := range test.ran {
				objects = append(objects, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: controllertest.Namespace, Name: name, Labels: map[string]string{render.LabelName: render.OperandDiscovery}},
					Spec:       corev1.PodSpec{NodeName: name},
					Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
				})
			}
			policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			if test.ready > 0 {
				policy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: test.ready}}
			}
			r := &Reconciler{Config: Config{Cluster: action.Cluster{Client: controllertest.NewPlainClient(t, objects...)}}}
			got, err := r.pendingDiscovery(t.Context(), &pass{Catalog: &catalog.Catalog{Policy: policy}}, set(""))
			if err != nil || got != test.want {
				t.Errorf("error %v, got %q, want %q", err, got, test.want)
			}
		})
	}
}
