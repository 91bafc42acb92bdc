package status

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing/listingtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

// installation returns a scene with an installer, a scheduler, agents and a policy.
func installation(t *testing.T) (*clustertest.Scene, *v1alpha1.ClusterPolicy) {
	t.Helper()
	s := clustertest.New(t)
	labels := map[string]string{"app.kubernetes.io/part-of": "tessera"}
	for name, replicas := range map[string]int32{"tessera-installer": 1, "tessera-scheduler": 2} {
		s.Add(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: name, Labels: labels},
			Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
			Status:     appsv1.DeploymentStatus{ReadyReplicas: replicas, UpdatedReplicas: replicas},
		})
	}
	s.Add(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: "tessera-node", Labels: labels},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, NumberReady: 5, UpdatedNumberScheduled: 5},
	})
	policy := &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 2}, Status: v1alpha1.ClusterPolicyStatus{
		ObservedGeneration: 2, Nodes: v1alpha1.NodeCounts{Total: 5, Ready: 5},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllReady", Message: "every node is Ready"}},
	}}
	s.Add(policy)
	for _, name := range []string{"gpu-a", "gpu-b", "gpu-c", "gpu-d", "gpu-e"} {
		s.GPUNode(name)
	}
	s.GPUNode("cpu").Status.Phase = v1alpha1.PhaseAbsent
	return s, policy
}

// degrade makes nodes and a component not ready.
func degrade(s *clustertest.Scene, policy *v1alpha1.ClusterPolicy) {
	policy.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "NodesFailed", Message: "1 node failed"},
		{Type: "Degraded", Status: metav1.ConditionTrue, Reason: "NodesFailed", Message: "gpu-c: DriverFailed"},
	}
	for _, object := range s.Objects {
		switch o := object.(type) {
		case *v1alpha1.GPUNode:
			switch o.Name {
			case "gpu-c":
				o.Status.Phase, o.Status.Reason, o.Status.Message = v1alpha1.PhaseFailed, "DriverFailed", "modprobe nvidia: No such device"
			case "gpu-a", "gpu-b", "gpu-d", "gpu-e":
				o.Status.Phase, o.Status.Reason, o.Status.Message = v1alpha1.PhaseUpgrading, "PodsRemain", "2 pods remain\x1b[2J"
			}
		case *appsv1.DaemonSet:
			o.Status.NumberReady = 4
		}
	}
}

func TestOutput(t *testing.T) {
	for file, answer := range map[string]output.Flags{
		"ready.txt": {Format: output.Text}, "degraded.txt": {Format: output.Text}, "degraded-wide.txt": {Format: output.Wide}, "degraded.json": {Format: output.JSON},
	} {
		s, policy := installation(t)
		degraded := strings.HasPrefix(file, "degraded")
		if degraded {
			degrade(s, policy)
		}
		var out bytes.Buffer
		r := request{answer: answer, out: &out, errOut: &bytes.Buffer{}}
		if err := r.run(t.Context(), s.Cluster()); output.Status(err) != map[bool]int{false: 0, true: 1}[degraded] {
			t.Errorf("%s: %v", file, err)
		}
		outputtest.Golden(t, file, out.String())
	}
}

func TestReasons(t *testing.T) {
	tests := map[string]struct {
		change func(*clustertest.Scene, *v1alpha1.ClusterPolicy)
		ready  bool
		want   string
	}{
		"ready":         {func(*clustertest.Scene, *v1alpha1.ClusterPolicy) {}, true, "5 of 5 GPU nodes are Ready"},
		"edited":        {func(_ *clustertest.Scene, p *v1alpha1.ClusterPolicy) { p.Generation = 3 }, false, "has not processed the latest edit"},
		"new policy":    {func(_ *clustertest.Scene, p *v1alpha1.ClusterPolicy) { p.Status = v1alpha1.ClusterPolicyStatus{} }, false, "has not processed the latest edit"},
		"not installed": {func(s *clustertest.Scene, _ *v1alpha1.ClusterPolicy) { s.Objects = nil }, false, "check that it is installed"},
		"no policy":     {func(_ *clustertest.Scene, p *v1alpha1.ClusterPolicy) { p.Name = "other" }, true, "there is no ClusterPolicy"},
		"new template of a driver": {func(s *clustertest.Scene, _ *v1alpha1.ClusterPolicy) {
			s.Add(&appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: "tessera-driver-abc", Labels: map[string]string{"app.kubernetes.io/part-of": "tessera"}},
				Spec:       appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}},
				Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, NumberReady: 5, UpdatedNumberScheduled: 0},
			})
		}, true, "5 of 5 GPU nodes are Ready"},
		"new template of the agent": {func(s *clustertest.Scene, _ *v1alpha1.ClusterPolicy) {
			for _, object := range s.Objects {
				if d, ok := object.(*appsv1.DaemonSet); ok {
					d.Status.UpdatedNumberScheduled = 2
				}
			}
		}, false, "2 of 5 pods of DaemonSet tessera-node are ready"},
		"scheduler": {func(s *clustertest.Scene, _ *v1alpha1.ClusterPolicy) {
			for _, object := range s.Objects {
				if d, ok := object.(*appsv1.Deployment); ok && d.Name == "tessera-scheduler" {
					d.Status.ReadyReplicas = 1
				}
			}
		}, false, "1 of 2 pods of Deployment tessera-scheduler are ready"},
	}
	for name, test := range tests {
		s, policy := installation(t)
		test.change(s, policy)
		r, err := load(t.Context(), s.Cluster())
		if err != nil || r.Ready != test.ready || !strings.Contains(r.Reason, test.want) {
			t.Errorf("%s: %v, %v, %q; want %v, %q", name, err, r.Ready, r.Reason, test.ready, test.want)
		}
	}
}

// TestWait waits until the third report, and until the timeout.
func TestWait(t *testing.T) {
	for name, reports := range map[string]int{"ready": 3, "timeout": 1000} {
		synctest.Test(t, func(t *testing.T) {
			s, policy := installation(t)
			policy.Status.Conditions[0].Status = metav1.ConditionFalse
			c := s.Cluster()
			client, ok := c.Dynamic.(*dynamicfake.FakeDynamicClient)
			if !ok {
				t.Fatalf("the client is a %T", c.Dynamic)
			}
			n := 0
			client.PrependReactor("list", "clusterpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
				if n++; n < reports {
					return false, nil, nil
				}
				policy.Status.Conditions[0].Status = metav1.ConditionTrue
				fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
				if err != nil {
					t.Error(err)
				}
				fields["apiVersion"], fields["kind"] = v1alpha1.APIVersion, "ClusterPolicy"
				return true, &unstructured.UnstructuredList{
					Object: map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "ClusterPolicyList"}, Items: []unstructured.Unstructured{{Object: fields}},
				}, nil
			})
			var out, errOut bytes.Buffer
			start := time.Now()
			r := request{wait: true, timeout: time.Minute, answer: output.Flags{Format: output.Text}, out: &out, errOut: &errOut}
			err := r.run(t.Context(), c)
			if errOut.String() != "AllReady: every node is Ready\n" {
				t.Errorf("%s: progress %q", name, errOut.String())
			}
			switch waited := time.Since(start); name {
			case "ready":
				if err != nil || waited != 2*interval || !strings.HasPrefix(out.String(), "Ready: 5 of 5") {
					t.Errorf("%s: %v after %s\n%s", name, err, waited, out.String())
				}
			default:
				if err == nil || !strings.Contains(err.Error(), "not ready after 1m0s") || waited != time.Minute {
					t.Errorf("%s: %v after %s", name, err, waited)
				}
			}
		})
	}
}

// TestWatch watches the status: a component and the policy change, and back.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, policy := installation(t)
		c := s.Cluster()
		daemonSets, policies := c.Client.AppsV1().DaemonSets(cluster.DefaultSystemNamespace), c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("clusterpolicies"))
		ready := func(n int32) func() error {
			return func() error {
				d, err := daemonSets.Get(t.Context(), "tessera-node", metav1.GetOptions{})
				if err != nil {
					return err
				}
				d.Status.NumberReady = n
				_, err = daemonSets.UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
				return err
			}
		}
		run := func(ctx context.Context, out, errOut io.Writer) error {
			r := request{answer: output.Flags{Format: output.Text, Watch: true}, out: out, errOut: errOut}
			return r.run(ctx, c)
		}
		listingtest.Golden(t, "watch.txt", run,
			listingtest.Step{Name: "a pod of the DaemonSet is not ready", Change: ready(4)},
			listingtest.Step{Name: "the policy is not ready", Change: func() error {
				policy.Status.Conditions[0].Status, policy.Status.Conditions[0].Reason, policy.Status.Conditions[0].Message = metav1.ConditionFalse, "NodesFailed", "1 node failed"
				fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
				if err != nil {
					return err
				}
				fields["apiVersion"], fields["kind"] = v1alpha1.APIVersion, "ClusterPolicy"
				_, err = policies.Update(t.Context(), &unstructured.Unstructured{Object: fields}, metav1.UpdateOptions{})
				return err
			}},
			listingtest.Step{Name: "the pod is ready", Change: ready(5)})
	})
}
