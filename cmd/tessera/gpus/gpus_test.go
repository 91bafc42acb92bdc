package gpus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/listing/listingtest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

// addForeignTaints taints every device of one GPU and one device of another.
func addForeignTaints(s *clustertest.Scene) {
	for _, object := range s.Objects {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		for i, d := range slice.Spec.Devices {
			if uuid := d.Attributes["index"].IntValue; *uuid == 6 || strings.HasSuffix(d.Name, "-mig-0-0") && *uuid == 7 {
				slice.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "gpu.tessera.dev/unhealthy", Value: "xid-79", Effect: resourceapi.DeviceTaintEffectNoExecute}}
			}
		}
	}
}

// addFaultTaints adds the taints of faults in gpu-a: of the whole GPUs 0, 5 and 6, and of parts of GPU 2. GPU 7 is held for remediation.
func addFaultTaints(s *clustertest.Scene) {
	whole := gpu.Placement{}
	s.Taint("gpu-a", 0, whole, "xid", "79", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(3*time.Minute))
	s.Taint("gpu-a", 0, whole, "lost", "", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(2*time.Minute))
	s.Taint("gpu-a", 2, gpu.Placement{Profile: 14, Start: 2, Size: 2}, "xid", "94", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(time.Hour))
	s.Taint("gpu-a", 2, gpu.Placement{Profile: 19, Start: 7, Size: 1}, "ecc", "", resourceapi.DeviceTaintEffectNoExecute, clustertest.Ago(26*time.Hour))
	s.Taint("gpu-a", 5, whole, "heat", "", resourceapi.DeviceTaintEffectNone, clustertest.Ago(9*time.Second))
	s.Taint("gpu-a", 6, whole, "xid", "1234", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(time.Minute))
	s.Taint("gpu-a", 7, whole, v1alpha1.TaintRemediation, "", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(time.Minute))
}

// addReportedFaults adds the same faults to the GPUNode, and one fault without a taint.
func addReportedFaults(s *clustertest.Scene) {
	addFaultTaints(s)
	node := s.GPUNode("gpu-a")
	zero, seven := s.GPUName("gpu-a", 0), s.GPUName("gpu-a", 7)
	part := gpu.Device{GPU: s.GPUName("gpu-a", 2), Use: gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 14, Start: 2, Size: 2}}}
	node.Status.Agent.Faults = []v1alpha1.GPUFault{
		{GPU: zero, Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reboot", Message: "the GPU has fallen off the bus: reboot the node", Since: clustertest.Ago(3 * time.Minute), BootID: "boot-2"},
		{GPU: part.GPU, Device: wire.DeviceName(part), Signal: "xid", XID: 94, Severity: "Critical", Remedy: "Restart", Message: "restart the program", Since: clustertest.Ago(time.Hour), BootID: "boot-2"},
		{GPU: s.GPUName("gpu-a", 3), Signal: "power", Severity: "Warning", Remedy: "Wait", Since: clustertest.Ago(time.Second), BootID: "boot-2"},
	}
	node.Spec.Remediations = []v1alpha1.Remediation{{ID: "1", GPU: seven, Step: v1alpha1.OrderReset, Reason: "reset for XID 95", Since: clustertest.Ago(time.Minute)}}
	node.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: seven, Step: v1alpha1.RemediationStepReset, Since: clustertest.Ago(time.Second)}}
}

func TestOutput(t *testing.T) {
	tests := []struct {
		file   string
		scene  func(*clustertest.Scene)
		answer output.Flags
		nodes  []string
	}{
		{file: "everyday.txt"},
		{file: "everyday-wide.txt", answer: output.Flags{Format: output.Wide}},
		{file: "everyday.json", answer: output.Flags{Format: output.JSON}},
		{file: "one-node.txt", nodes: []string{"gpu-b"}},
		{file: "color.txt", answer: output.Flags{Color: "always"}},
		{file: "tainted.txt", scene: addForeignTaints},
		{file: "faults.txt", scene: addFaultTaints},
		{file: "faults-color.txt", scene: addFaultTaints, answer: output.Flags{Color: "always"}},
		{file: "reported.txt", scene: addReportedFaults},
		{file: "reported-wide.txt", scene: addReportedFaults, answer: output.Flags{Format: output.Wide}},
		{file: "reported.json", scene: addReportedFaults, answer: output.Flags{Format: output.JSON}},
		{file: "one-node.yaml", answer: output.Flags{Format: output.YAML}, nodes: []string{"gpu-b"}},
		{file: "conflict.txt", scene: func(s *clustertest.Scene) {
			node := s.Node("gpu-c", "rtxpro6000x4", nil)
			s.Claim("one", "mig.tessera.dev", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			s.Claim("two", "mig.tessera.dev", clustertest.Result(node, 0, gpu.Use{Shape: gpu.Whole}))
			gone := clustertest.Result(node, 1, gpu.Use{Shape: gpu.VFIO})
			s.Claim("three", "mig.tessera.dev", gone)
		}, nodes: []string{"gpu-c"}},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			s := clustertest.Everyday(t)
			if test.scene != nil {
				test.scene(s)
			}
			if test.answer.Format == "" {
				test.answer.Format = output.Text
			}
			if test.answer.Color == "" {
				test.answer.Color = "auto"
			}
			var out, errOut bytes.Buffer
			if err := run(t.Context(), s.Cluster(), request{names: test.nodes, answer: test.answer, now: func() time.Time { return clustertest.Now }, out: &out, errOut: &errOut}); err != nil {
				t.Fatal(err)
			}
			if errOut.Len() > 0 {
				t.Errorf("error output: %s", errOut.String())
			}
			outputtest.Golden(t, test.file, out.String())
		})
	}
}

// TestWidths draws one cluster on narrow and wide terminals: no line is longer than the terminal, and the withheld memory slice
// is always drawn.
func TestWidths(t *testing.T) {
	c := clustertest.Everyday(t).Cluster()
	list, err := Load(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{40, 60, 80, 200} {
		var out bytes.Buffer
		Draw(&output.Screen{Out: &out, Width: width, Cut: true, Wide: true}, list, clustertest.Now)
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("%d columns: %d in %q", width, n, line)
			}
		}
		if !strings.Contains(out.String(), "|xxx") {
			t.Errorf("%d columns: the withheld memory slice is missing:\n%s", width, out.String())
		}
	}
}

func TestEmpty(t *testing.T) {
	var out, errOut bytes.Buffer
	r := request{answer: output.Flags{Format: output.Text, Color: "auto"}, out: &out, errOut: &errOut}
	if err := run(t.Context(), clustertest.New(t).Cluster(), r); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || !strings.Contains(errOut.String(), "No GPUs are published by gpu.tessera.dev or gpu.nvidia.com.\nCheck the agents: kubectl -n tessera-system get pods") {
		t.Errorf("out %q, err %q", out.String(), errOut.String())
	}
	r.answer.Format = output.JSON
	if err := run(t.Context(), clustertest.New(t).Cluster(), r); err != nil {
		t.Fatal(err)
	}
	outputtest.Golden(t, "empty.json", out.String())
}

func TestErrors(t *testing.T) {
	slices := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceslices"}
	tests := map[string]struct {
		verb, resource string
		err            error
		nodes          []string
		format         output.Format
		want           []string
	}{
		"forbidden":    {"list", "resourceslices", apierrors.NewForbidden(slices, "", errors.New("no")), nil, "", []string{"list the ResourceSlices: ", "forbidden", "kubectl auth can-i --list"}},
		"unauthorized": {"list", "resourceclaims", apierrors.NewUnauthorized("no credentials"), nil, "", []string{"list the ResourceClaims of all namespaces", "log in again"}},
		"no DRA":       {"list", "resourceslices", apierrors.NewNotFound(slices, ""), nil, "", []string{"does not serve resource.k8s.io/v1, which Tessera requires"}},
		"unreachable":  {"list", "resourceslices", &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("connection refused")}, nil, "", []string{"connection refused", "check the network, --context and --kubeconfig"}},
		"interrupted":  {"list", "resourceslices", context.Canceled, nil, "", []string{"interrupted"}},
		"other node":   {"", "", nil, []string{"gpu-z"}, "", []string{`node "gpu-z" publishes no GPUs; nodes with GPUs: gpu-a, gpu-b`}},
	}
	for name, test := range tests {
		c := clustertest.Everyday(t).Cluster()
		failRequests(t, c, test.verb, test.resource, test.err)
		err := run(t.Context(), c, request{names: test.nodes, answer: output.Flags{Format: output.Text, Color: "auto"}, out: &bytes.Buffer{}, errOut: &bytes.Buffer{}})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q, want %q in it", name, err, want)
			}
		}
	}
	var out bytes.Buffer
	c := clustertest.Everyday(t).Cluster()
	failRequests(t, c, "list", "pods", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")))
	if err := run(t.Context(), c, request{answer: output.Flags{Format: output.Text, Color: "auto"}, now: time.Now, out: &out}); err != nil || !strings.Contains(out.String(), "Pod phases are missing: list the pods of all namespaces") || !strings.Contains(out.String(), "demo/train-0") {
		t.Errorf("without permission to list pods: %v\n%s", err, out.String())
	}
}

// failRequests makes requests of the kind fail with err.
func failRequests(t *testing.T, c *cluster.Cluster, verb, resource string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	client, ok := c.Client.(*fake.Clientset)
	if !ok {
		t.Fatalf("the client is a %T", c.Client)
	}
	client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	cmd := Command(cluster.NewFlags())
	cmd.SetArgs([]string{})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no cluster is configured: use --kubeconfig") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	cmd.SetArgs([]string{"-o", "xml"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), `--output "xml": must be one of text, wide, name, json, yaml, jsonpath`) {
		t.Errorf("-o xml: %v", err)
	}
}

// TestSelection selects GPUs by arguments and by labels of their nodes.
func TestSelection(t *testing.T) {
	s := clustertest.Everyday(t)
	for _, object := range s.Objects {
		if node, ok := object.(*corev1.Node); ok {
			node.Labels = map[string]string{"zone": strings.TrimPrefix(node.Name, "gpu-")}
		}
	}
	first := "gpu-a/" + s.GPUName("gpu-a", 0)
	tests := map[string]struct {
		names    []string
		selector string
		want     int
		err      string
	}{
		"all":               {want: 9},
		"node":              {names: []string{"gpu-b"}, want: 1},
		"name":              {names: []string{first}, want: 1},
		"index and node":    {names: []string{"gpu-a/7", "gpu-b"}, want: 2},
		"the same twice":    {names: []string{"gpu-a/0", first}, want: 1},
		"label":             {selector: "zone=a", want: 8},
		"label and node":    {selector: "zone=a", names: []string{"gpu-b"}, err: `node "gpu-b" publishes no GPUs; nodes with GPUs: gpu-a`},
		"no node":           {selector: "zone=c", want: 0},
		"unknown GPU":       {names: []string{"gpu-a/8"}, err: "lists the names"},
		"GPU without name":  {names: []string{"gpu-a/"}, err: "lists the names"},
		"GPU of other node": {names: []string{"gpu-b/" + s.GPUName("gpu-a", 0)}, err: "lists the names"},
	}
	for name, test := range tests {
		var out bytes.Buffer
		err := run(t.Context(), s.Cluster(), request{names: test.names, selector: test.selector, answer: output.Flags{Format: output.Name}, out: &out})
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || strings.Count(out.String(), "\n") != test.want {
			t.Errorf("%s: %v, want %q and %d GPUs\n%s", name, err, test.err, test.want, out.String())
		}
	}
	for begin, want := range map[string]string{"": "gpu-a", "gpu-a/": first} {
		if names, err := complete(t.Context(), s.Cluster(), begin); err != nil || !slices.Contains(names, want) {
			t.Errorf("completion of %q: %v, %v, want %s", begin, names, err, want)
		}
	}
}

// TestWatch watches the GPUs: a claim is allocated and deleted, a fault appears, and a node stops publishing.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.Everyday(t)
		c := s.Cluster()
		published, claims := c.Client.ResourceV1().ResourceSlices(), c.Client.ResourceV1().ResourceClaims("demo")
		run := func(ctx context.Context, out, errOut io.Writer) error {
			answer := output.Flags{Format: output.Text, Watch: true}
			return run(ctx, c, request{answer: answer, now: func() time.Time { return clustertest.Now }, out: out, errOut: errOut})
		}
		other := clustertest.New(t)
		claim := other.Claim("new", "gpu.tessera.dev", clustertest.Result(other.Node("gpu-a", "h100x8", nil), 5, gpu.Use{Shape: gpu.Whole}))
		overlap := other.Claim("overlap", "gpu.tessera.dev", clustertest.Result(other.Node("gpu-b", "t4x1", nil), 0, gpu.Use{Shape: gpu.Whole}))
		listingtest.Golden(t, "watch.txt", run,
			listingtest.Step{Name: "GPU 5 is allocated", Change: func() error {
				_, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
				return err
			}},
			listingtest.Step{Name: "GPU 0 has a fault", Change: func() error {
				s.Taint("gpu-a", 0, gpu.Placement{}, "xid", "79", resourceapi.DeviceTaintEffectNoSchedule, clustertest.Ago(3*time.Minute))
				for _, object := range s.Objects {
					if slice, ok := object.(*resourceapi.ResourceSlice); ok {
						if _, err := published.Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
							return err
						}
					}
				}
				return nil
			}},
			listingtest.Step{Name: "a claim on the GPU of gpu-b conflicts", Change: func() error {
				_, err := claims.Create(t.Context(), overlap, metav1.CreateOptions{})
				return err
			}},
			listingtest.Step{Name: "gpu-b publishes nothing, GPU 5 is free", Change: func() error {
				list, err := published.List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, slice := range list.Items {
					if *slice.Spec.NodeName == "gpu-b" {
						err = errors.Join(err, published.Delete(t.Context(), slice.Name, metav1.DeleteOptions{}))
					}
				}
				return errors.Join(err, claims.Delete(t.Context(), "new", metav1.DeleteOptions{}))
			}})
	})
}
