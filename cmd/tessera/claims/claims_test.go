package claims

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing/listingtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

func TestOutput(t *testing.T) {
	tests := []struct {
		file      string
		namespace string
		answer    output.Flags
	}{
		{"everyday.txt", "demo", output.Flags{Format: output.Text, Color: "auto"}},
		{"everyday-wide.txt", "", output.Flags{Format: output.Wide, Color: "auto"}},
		{"everyday-color.txt", "demo", output.Flags{Format: output.Text, Color: "always"}},
		{"everyday.json", "demo", output.Flags{Format: output.JSON, Color: "auto"}},
	}
	for _, test := range tests {
		s := clustertest.Everyday(t)
		foreign := s.Claim("foreign", "nic.example.com")
		foreign.Namespace = "demo"
		var out, errOut bytes.Buffer
		if err := run(t.Context(), s.Cluster(), request{selection: Selection{Namespace: test.namespace}, answer: test.answer, out: &out, errOut: &errOut}); err != nil {
			t.Fatal(err)
		}
		outputtest.Golden(t, test.file, out.String())
		if errOut.Len() > 0 {
			t.Errorf("%s: error output %q", test.file, errOut.String())
		}
	}
}

// TestStates covers each state with its reason.
func TestStates(t *testing.T) {
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: "Prepared"}
	tests := map[string]struct {
		build func(s *clustertest.Scene, node gpu.Node)
		state State
		// reason is contained in the claim's reason; empty: there is none.
		reason string
	}{
		"no pod": {func(s *clustertest.Scene, _ gpu.Node) { s.Claim("c", "gpu.tessera.dev") }, Pending, "no pod uses it"},
		"new pod": {func(s *clustertest.Scene, _ gpu.Node) {
			s.Pod("p", "", corev1.PodPending, s.Claim("c", "gpu.tessera.dev"))
		}, Pending, "waiting for the scheduler"},
		"unschedulable": {func(s *clustertest.Scene, _ gpu.Node) {
			p := s.Pod("p", "", corev1.PodPending, s.Claim("c", "gpu.tessera.dev"))
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available:\n1 cannot allocate all claims."}}
		}, Pending, "0/1 nodes are available: 1 cannot allocate all claims."},
		"first available": {func(s *clustertest.Scene, _ gpu.Node) {
			c := s.Claim("c", "x")
			c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "g", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "gpu.tessera.dev"}}}}
		}, Pending, "no pod uses it"},
		"extended resource": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			p := s.Pod("p", "n", corev1.PodRunning, c)
			p.Spec.ResourceClaims = nil
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "c"}
		}, InUse, ""},
		"from a template": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			p := s.Pod("p", "n", corev1.PodRunning, c)
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("t")}}
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("c")}}
		}, InUse, ""},
		"allocated without a pod": {func(s *clustertest.Scene, node gpu.Node) {
			s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
		}, Allocated, "reserved for no pod"},
		"container creating": {func(s *clustertest.Scene, node gpu.Node) {
			p := s.Pod("p", "n", corev1.PodPending, s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole})))
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
		}, Preparing, "ContainerCreating"},
		"prepared": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			p := s.Pod("p", "n", corev1.PodPending, c)
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}
			clustertest.Report(c, 0, "GPU-1", ready)
		}, Ready, "ErrImagePull: no such image"},
		"one of two prepared": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}), clustertest.Result(node, 1, gpu.Use{Shape: gpu.Whole}))
			s.Pod("p", "n", corev1.PodPending, c)
			clustertest.Report(c, 0, "GPU-1", ready)
		}, Preparing, ""},
		"refused": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			s.Pod("p", "n", corev1.PodPending, c)
			clustertest.Report(c, 0, "", metav1.Condition{Status: metav1.ConditionFalse, Reason: "Refused", Message: "the GPU is lost"})
		}, Failed, "Refused: the GPU is lost"},
		"deleted": {func(s *clustertest.Scene, node gpu.Node) {
			c := s.Claim("c", "x", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			s.Pod("p", "n", corev1.PodRunning, c)
			c.DeletionTimestamp = &metav1.Time{}
			c.Finalizers = []string{"resource.kubernetes.io/delete-protection"}
		}, Deleting, "waiting for its pods to end"},
	}
	for name, test := range tests {
		s := clustertest.New(t)
		s.Class("gpu.tessera.dev")
		test.build(s, s.Node("n", "h100x2", nil))
		list, err := Load(t.Context(), s.Cluster(), Selection{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 {
			t.Errorf("%s: %d claims", name, len(list.Items))
			continue
		}
		if got := list.Items[0]; got.State != test.state || !strings.Contains(got.Reason, test.reason) || test.reason == "" && got.Reason != "" {
			t.Errorf("%s: %s, reason %q; want %s, reason %q", name, got.State, got.Reason, test.state, test.reason)
		}
	}
}

func TestNothing(t *testing.T) {
	for namespace, want := range map[string]string{"": "No claims on GPUs found.\n", "demo": "No claims on GPUs found in demo; -A lists all namespaces.\n"} {
		var out, errOut bytes.Buffer
		r := request{selection: Selection{Namespace: namespace}, answer: output.Flags{Format: output.Text, Color: "auto"}, out: &out, errOut: &errOut}
		if err := run(t.Context(), clustertest.New(t).Cluster(), r); err != nil || out.Len() > 0 || errOut.String() != want {
			t.Errorf("%q: %v, out %q, err %q", namespace, err, out.String(), errOut.String())
		}
	}
}

// TestForbidden covers missing permissions: without claims or pods the verb fails, without others it reports a problem.
func TestForbidden(t *testing.T) {
	tests := map[string]struct{ err, problem, has string }{
		"resourceclaims": {err: "list the ResourceClaims in demo: "},
		"pods":           {err: "list the pods in demo: "},
		"deviceclasses":  {problem: "Pending claims are listed without regard to their class: list the DeviceClasses: ", has: "foreign"},
		"resourceslices": {problem: "Shapes of devices are missing: list the ResourceSlices: ", has: "gpu-0000-52-00-0-mig-19-0"},
	}
	for resource, test := range tests {
		s := clustertest.Everyday(t)
		s.Claim("foreign", "nic.example.com")
		c := s.Cluster()
		c.Client.(*fake.Clientset).PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
		})
		var out, errOut bytes.Buffer
		err := run(t.Context(), c, request{selection: Selection{Namespace: "demo"}, answer: output.Flags{Format: output.Text, Color: "auto"}, out: &out, errOut: &errOut})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "Your user lacks this permission") {
				t.Errorf("%s: %v", resource, err)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(errOut.String(), test.problem) || !strings.Contains(out.String(), test.has) {
			t.Errorf("%s: %v\n%s\n%s", resource, err, errOut.String(), out.String())
		}
	}
}

// TestSelection selects claims by arguments and by labels.
func TestSelection(t *testing.T) {
	s := clustertest.Everyday(t)
	for _, object := range s.Objects {
		if claim, ok := object.(*resourceapi.ResourceClaim); ok && strings.HasPrefix(claim.Name, "notebook") {
			claim.Labels = map[string]string{"team": "vision"}
		}
	}
	tests := map[string]struct {
		names    []string
		selector string
		want     string
		err      string
	}{
		"names":         {names: []string{"train", "chat"}, want: "resourceclaim.resource.k8s.io/chat\nresourceclaim.resource.k8s.io/train\n"},
		"label":         {selector: "team=vision", want: "resourceclaim.resource.k8s.io/notebook-a\nresourceclaim.resource.k8s.io/notebook-b\nresourceclaim.resource.k8s.io/notebook-c\n"},
		"name in label": {names: []string{"notebook-b"}, selector: "team", want: "resourceclaim.resource.k8s.io/notebook-b\n"},
		"unknown":       {names: []string{"train", "absent"}, err: `no claim on GPUs is named "absent"`},
	}
	for name, test := range tests {
		var out bytes.Buffer
		r := request{selection: Selection{"demo", test.selector}, names: test.names, answer: output.Flags{Format: output.Name}, out: &out}
		err := run(t.Context(), s.Cluster(), r)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || out.String() != test.want {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

// TestWatch watches the claims of a namespace: one is prepared, one gets a pod, one is deleted, and one of no GPU is created.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.Everyday(t)
		c := s.Cluster()
		claims, pods := c.Client.ResourceV1().ResourceClaims("demo"), c.Client.CoreV1().Pods("demo")
		run := func(ctx context.Context, out, errOut io.Writer) error {
			return run(ctx, c, request{selection: Selection{Namespace: "demo"}, answer: output.Flags{Format: output.Text, Watch: true}, out: out, errOut: errOut})
		}
		listingtest.Golden(t, "watch.txt", run,
			listingtest.Step{Name: "chat is prepared and its pod runs", Change: func() error {
				claim, err := claims.Get(t.Context(), "chat", metav1.GetOptions{})
				if err != nil {
					return err
				}
				claim.Status.Devices = nil
				clustertest.Report(claim, 0, "MIG-1", metav1.Condition{Status: metav1.ConditionTrue, Reason: "Prepared"})
				if _, err := claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
					return err
				}
				pod, err := pods.Get(t.Context(), "chat-0", metav1.GetOptions{})
				if err != nil {
					return err
				}
				pod.Status.Phase = corev1.PodRunning
				_, err = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
				return err
			}},
			listingtest.Step{Name: "a claim on another device is created", Change: func() error {
				_, err := claims.Create(t.Context(), clustertest.New(t).Claim("nic", "nic.example.com"), metav1.CreateOptions{})
				return err
			}},
			listingtest.Step{Name: "a claim with a long name is created", Change: func() error {
				_, err := claims.Create(t.Context(), clustertest.New(t).Claim("a-claim-with-a-long-name", "gpu.tessera.dev"), metav1.CreateOptions{})
				return err
			}},
			listingtest.Step{Name: "unused is deleted", Change: func() error { return claims.Delete(t.Context(), "unused", metav1.DeleteOptions{}) }})
	})
}
