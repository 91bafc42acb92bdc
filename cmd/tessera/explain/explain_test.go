package explain

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

const slicesClass = "mig-3g.40gb.tessera.dev"

// scene returns a cluster with a node whose GPUs are partly used, an empty node, a cordoned node and a node with a T4, and pending pods that
// request 3g.40gb MIG devices.
func scene(t *testing.T) *clustertest.Scene {
	t.Helper()
	s := clustertest.New(t)
	s.Node("closed", "h100x2", nil)
	s.Node("empty", "h100x2", nil)
	broken := s.Node("broken", "h100x2", nil)
	held := s.Claim("held", slicesClass, clustertest.Result(broken, 1, clustertest.MIGUse(19, 6, 1)))
	s.Pod("holder", "broken", corev1.PodRunning, held)
	old := s.Node("old", "t4x1", nil)
	s.Pod("render", "old", corev1.PodRunning, s.Claim("whole", "gpu.tessera.dev", clustertest.Result(old, 0, gpu.Use{Shape: gpu.Whole})))
	for _, object := range s.Objects {
		if n, ok := object.(*corev1.Node); ok {
			n.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("10"), "cpu": resource.MustParse("8")}
			n.Spec.Unschedulable = n.Name == "closed"
		}
	}
	s.ProfileClass(slicesClass, "3g.40gb")
	addPending(s, "one", 1)
	addPending(s, "many", 9)
	s.Scheduler("../../../deployments/scheduler/replace/config.yaml")
	return s
}

// addPending adds a pending pod that requests that many MIG devices.
func addPending(s *clustertest.Scene, name string, count int64) {
	claim := s.Claim(name, slicesClass)
	claim.Spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeExactCount
	claim.Spec.Devices.Requests[0].Exactly.Count = count
	pod := s.Pod(name, "", corev1.PodPending, claim)
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
}

func run(t *testing.T, c *cluster.Cluster, pod string, format output.Format) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := request{pod: pod, out: &out, answer: output.Flags{Format: format, Color: "never"}}.run(t.Context(), c)
	return out.String(), err
}

func TestOutput(t *testing.T) {
	for file, test := range map[string]struct {
		pod    string
		format output.Format
	}{
		"one.txt":    {"one", output.Text},
		"one.json":   {"one", output.JSON},
		"many.txt":   {"many", output.Text},
		"holder.txt": {"holder", output.Text},
	} {
		t.Run(file, func(t *testing.T) {
			c := scene(t).Cluster()
			got, err := run(t, c, test.pod, test.format)
			if err != nil {
				t.Fatal(err)
			}
			outputtest.Golden(t, file, got)
		})
	}
}

func TestOutOfService(t *testing.T) {
	s := scene(t)
	for _, object := range s.Objects {
		if n, ok := object.(*corev1.Node); ok && n.Name == "empty" {
			n.Labels = map[string]string{v1alpha1.LabelMaintenance: string(v1alpha1.OperationDriverSwap)}
		}
	}
	got, err := run(t, s.Cluster(), "one", output.Text)
	if err != nil || !strings.Contains(got, "the GPUs are out of service (node label tessera.dev/maintenance)") {
		t.Errorf("%v:\n%s", err, got)
	}
}

// TestReadsOnly checks that the verb writes nothing.
func TestReadsOnly(t *testing.T) {
	c := scene(t).Cluster()
	if _, err := run(t, c, "one", output.Text); err != nil {
		t.Fatal(err)
	}
	for _, action := range c.Client.(*fake.Clientset).Actions() {
		switch action.GetVerb() {
		case "get", "list", "watch":
		default:
			t.Errorf("%s %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestErrors(t *testing.T) {
	other := scene(t)
	for _, object := range other.Objects {
		if pod, ok := object.(*corev1.Pod); ok && pod.Name == "one" {
			pod.Spec.SchedulerName = "volcano"
		}
	}
	without := scene(t)
	without.Objects = slices.DeleteFunc(without.Objects, func(o runtime.Object) bool { _, is := o.(*appsv1.Deployment); return is })
	for name, test := range map[string]struct {
		scene *clustertest.Scene
		pod   string
		want  string
	}{
		"no such pod":       {scene(t), "none", "read pod demo/none"},
		"another scheduler": {other, "one", `the pod's schedulerName is "volcano", which is not a profile of Tessera's scheduler`},
		"no configuration":  {without, "one", "name the scheduler's configuration file with --config"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, test.scene.Cluster(), test.pod, output.Text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	cmd := Command(cluster.NewFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"one"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "the argument must be pod/NAME") {
		t.Errorf("got %v", err)
	}
}
