package doctor

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// slicesOf returns the ResourceSlices of the node.
func (h *nodesScene) slicesOf(node string) []*resourceapi.ResourceSlice {
	var list []*resourceapi.ResourceSlice
	for _, object := range h.Objects {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node {
			list = append(list, slice)
		}
	}
	return list
}

// TestRareFindings covers findings with conditions that TestFindings does not meet.
func TestRareFindings(t *testing.T) {
	checkFindings(t, map[string]findingTest{
		"two agents, none ready": {
			func(h *nodesScene) {
				h.agentB.Status.Conditions, h.agentB.CreationTimestamp = nil, ago(time.Hour)
				newer := h.system("tessera-node", "agent-b2", "gpu-b")
				newer.Status.Conditions, newer.CreationTimestamp = nil, ago(time.Minute)
				newer.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "wait", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
			},
			"gpu-b", "Critical", ReasonAgentNotReady, []string{"pod agent-b2 is Running, container wait is waiting: ErrImagePull"}, []string{"pod agent-b is"},
		},
		"a fault of a MIG device that is not published": {
			func(h *nodesScene) {
				h.fault(2, v1alpha1.GPUFault{Signal: "xid", XID: 94, Severity: "Critical", Remedy: "Restart", Device: "gpu-0000-52-00-0-mig-99-9"})
			},
			"gpu-a", "Critical", ReasonFault, []string{"GPU 2 (gpu-0000-52-00-0), gpu-0000-52-00-0-mig-99-9: XID 94"}, []string{"demo/chat", "memory slices"},
		},
		"a remediation without a report of the agent": {
			func(h *nodesScene) {
				h.Taint("gpu-a", 0, gpu.Placement{}, "xid", "95", resourceapi.DeviceTaintEffectNoSchedule, ago(time.Minute))
				h.gpuNode.Status.Agent = nil
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepDrain, Since: ago(time.Second)}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"status  Drain for 1s"}, []string{"agent:"},
		},
		"a remediation of another GPU": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepHold, Since: ago(time.Second), Attempts: 2}}
				h.gpuNode.Spec.Remediations = []v1alpha1.Remediation{{ID: "1", GPU: h.a.GPUs[1].Name()}, {ID: "2", GPU: h.a.GPUs[0].Name()}}
				h.gpuNode.Status.Agent.Remediations = []v1alpha1.AgentRemediation{{ID: "1", State: v1alpha1.RemediationStateHolding}, {ID: "2", State: v1alpha1.RemediationStateFailed, Message: "nvidia-smi failed"}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"2 resets so far", "agent: Failed, 0 claims prepared: nvidia-smi failed"}, []string{"Holding"},
		},
		"a remediation of a GPU without a fault, not held": {
			func(h *nodesScene) {
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[6].Name(), Step: v1alpha1.RemediationStepRestore, Since: ago(time.Second)}}
			},
			"gpu-a", "Warning", ReasonHeld, []string{"out of service for remediation\n", "Restore for 1s"}, nil,
		},
		"a fault without a policy": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.suggested(0)
				h.policy.Name = "not-default"
			},
			"gpu-a", "Fatal", ReasonFault, []string{"XID 95", "remediation.mode: Act does this automatically"}, nil,
		},
		"a fault that the installer has not seen yet, without a policy": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.policy.Name = "not-default"
			},
			"gpu-a", "Fatal", ReasonFault, []string{"XID 95"}, []string{"status "},
		},
		"a fault that waits, without an installer": {
			func(h *nodesScene) {
				h.Taint("gpu-b", 0, gpu.Placement{}, "lost", "", resourceapi.DeviceTaintEffectNoExecute, ago(time.Minute))
			},
			"gpu-b", "Fatal", ReasonFault, []string{"lost"}, []string{"drain node gpu-b"},
		},
		"an unhealthy device of a claim from a template": {
			func(h *nodesScene) {
				pod := h.pod("embed")
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "other", ResourceClaimName: new("another")}, {Name: "gpu", ResourceClaimTemplateName: new("t")}}
				pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "none"}, {Name: "gpu", ResourceClaimName: new("embed")}}
				h.reportHealth("embed", corev1.ResourceHealthStatusUnhealthy, "XID 95")
			},
			"gpu-a", "Critical", ReasonPodUnhealthy, []string{"Unhealthy: XID 95"}, nil,
		},
		"an unhealthy device without a message": {
			func(h *nodesScene) {
				h.pod("embed").Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResourcesStatus: []corev1.ResourceStatus{
					{Name: "claim:another", Resources: []corev1.ResourceHealth{{Health: corev1.ResourceHealthStatusUnhealthy}}},
					{Name: "claim:gpu", Resources: []corev1.ResourceHealth{{Health: corev1.ResourceHealthStatusUnknown}, {Health: corev1.ResourceHealthStatusUnhealthy}, {Health: corev1.ResourceHealthStatusHealthy}}},
				}}}
			},
			"gpu-a", "Critical", ReasonPodUnhealthy, []string{"device gpu-0000-52-00-0-mig-19-0: Unhealthy\n"}, nil,
		},
		"a device that does not decode": {
			func(h *nodesScene) {
				slice := h.slicesOf("gpu-b")[0]
				slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: "fpga-0"})
			},
			"gpu-b", "Warning", ReasonInvalidDevices, []string{"1 device cannot be decoded", "the first is fpga-0: "}, nil,
		},
		"a pool in the name of another node": {
			func(h *nodesScene) {
				slice := h.slicesOf("gpu-b")[0].DeepCopy()
				slice.Name, slice.Spec.Pool = "stolen", resourceapi.ResourcePool{Name: "gpu-a-" + clustertest.Driver, Generation: 1 << 62, ResourceSliceCount: 1}
				h.Add(slice)
			},
			"gpu-b", "Critical", ReasonPoolRefused, []string{`pool "gpu-a-gpu.tessera.dev" of node gpu-b, whose pool is "gpu-b-gpu.tessera.dev"`, "who writes ResourceSlices"}, nil,
		},
		"a taint rule for one device": {
			func(h *nodesScene) {
				rule := func(name string, selector *resourceapi.DeviceTaintSelector) {
					r := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
					r.Spec.DeviceSelector = selector
					r.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/audit", Effect: resourceapi.DeviceTaintEffectNoExecute, Value: "yes"}
					h.Add(r)
				}
				rule("without-selector", nil)
				rule("another-driver", &resourceapi.DeviceTaintSelector{Driver: new("net.example.com")})
				rule("another-device", &resourceapi.DeviceTaintSelector{Device: new("gpu-9")})
				rule("one-device", &resourceapi.DeviceTaintSelector{Driver: new(clustertest.Driver), Device: new(h.b.GPUs[0].Name())})
			},
			"gpu-b", "Warning", ReasonTainted, []string{"DeviceTaintRule one-device taints devices of the node: example.com/audit=yes:NoExecute"},
			[]string{"without-selector", "another-driver", "another-device"},
		},
		"a rolled-back upgrade": {
			func(h *nodesScene) {
				h.gpuNode.Status.Phase, h.gpuNode.Status.Reason = v1alpha1.PhaseRolledBack, "ValidationFailed"
			},
			"gpu-a", "Warning", ReasonNotInService, []string{"RolledBack: ValidationFailed", "in service with the last working driver"}, nil,
		},
		"a node during its installation": {
			func(h *nodesScene) {
				h.gpuNode.Status.Phase, h.gpuNode.Status.Reason = v1alpha1.PhaseDriverInstalling, "Installing"
				h.agentA.Spec.NodeName = ""
				h.deleteSlices("gpu-a")
				h.gpuNode.Status.Agent.DriverVersion = ""
			},
			"gpu-a", "Warning", ReasonNotInService, []string{"DriverInstalling: Installing", "the installer is working on the node"}, []string{"no agent", "is not published", "driver."},
		},
		"a maintenance that is about to begin": {
			func(h *nodesScene) {
				h.gpuNode.Spec.Maintenance = &v1alpha1.Maintenance{ID: "1", Operation: v1alpha1.OperationDriverSwap, Since: ago(time.Minute)}
				h.agentA.Status.Conditions = nil
			},
			"gpu-a", "Warning", ReasonMaintenance, []string{"out of service for DriverSwap, since 60s"}, []string{"the agent is not ready"},
		},
		"a claim without pods on a node that is gone": {
			func(h *nodesScene) {
				h.Claim("left", "gpu.tessera.dev", clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.Whole}))
				h.agentB.Spec.NodeName = ""
				h.deleteSlices("gpu-b")
			},
			"gpu-b", "Critical", ReasonNoResourceSlices, []string{"claim demo/left, used by no pod", "1 pod affected"}, nil,
		},
	})
}

// TestNoFinding covers states that are no fault.
func TestNoFinding(t *testing.T) {
	for name, change := range map[string]func(*nodesScene){
		"a pending claim": func(h *nodesScene) { h.Claim("pending", "gpu.tessera.dev") },
		"a claim with devices of two nodes": func(h *nodesScene) {
			h.user("both", clustertest.Result(h.a, 5, gpu.Use{Shape: gpu.Whole}))
			claim := h.Claim("two", "gpu.tessera.dev", clustertest.Result(h.a, 6, gpu.Use{Shape: gpu.Whole}), clustertest.Result(h.a, 7, gpu.Use{Shape: gpu.Whole}))
			other := clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.Monitor})
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, other)
		},
		"a claim reserved for another kind": func(h *nodesScene) {
			claim := h.Claim("job", "gpu.tessera.dev", clustertest.Result(h.a, 5, gpu.Use{Shape: gpu.Whole}))
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{APIGroup: "batch", Resource: "jobs", Name: "train"}}
		},
		"a pod that does not name its claim": func(h *nodesScene) {
			h.pod("embed").Spec.ResourceClaims = nil
			h.reportHealth("embed", corev1.ResourceHealthStatusUnhealthy, "")
		},
		"a pod without a status": func(h *nodesScene) { h.pod("embed").Status.ContainerStatuses = nil },
		"a ready agent on a node without GPUs": func(h *nodesScene) {
			h.system("tessera-node", "agent-cpu", "cpu-1")
		},
		"a pod of that name in another namespace": func(h *nodesScene) {
			h.system("tessera-node", "agent-x", "cpu-1").Namespace = "demo"
			h.pod("agent-x").Status.Conditions = nil
		},
		"a GPUNode without GPUs": func(h *nodesScene) { h.GPUNode("cpu-1").Status.Phase = v1alpha1.PhaseAbsent },
		"ResourceSlices of no node": func(h *nodesScene) {
			slice := h.slicesOf("gpu-b")[0].DeepCopy()
			slice.Name, slice.Spec.NodeName, slice.Spec.AllNodes = "all-nodes", nil, new(true)
			slice.Spec.Pool.Name = "network"
			h.Add(slice)
		},
		"a node without conditions": func(h *nodesScene) {
			for _, object := range h.Objects {
				if node, ok := object.(*corev1.Node); ok {
					node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}
				}
			}
		},
		"a GPUNode without hardware": func(h *nodesScene) { h.gpuNode.Status.Hardware = nil },
		"no reboot required": func(h *nodesScene) {
			h.gpuNode.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRebootRequired, Status: metav1.ConditionFalse}}
		},
		"a lease without times": func(h *nodesScene) {
			h.system("tessera-scheduler", "s", "x")
			h.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "tessera-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("s")}})
		},
		"a lease without a duration": func(h *nodesScene) {
			h.system("tessera-scheduler", "s", "x")
			h.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "tessera-scheduler"}, Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("s"), RenewTime: &metav1.MicroTime{Time: clustertest.Now.Add(-time.Hour)},
			}})
		},
		"a lease of another component": func(h *nodesScene) {
			h.system("tessera-scheduler", "s", "x")
			h.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "other"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newNodesScene(t)
			change(h)
			r := h.report(t)
			if r.Summary != "2 nodes healthy." {
				t.Errorf("%s", draw(r))
			}
		})
	}
}

// TestUnreadableNodes builds the report from a state without Node objects: the boot of the agent's report is not compared.
func TestUnreadableNodes(t *testing.T) {
	h := newNodesScene(t)
	h.gpuNode.Status.Agent.BootID = "boot-1"
	c := h.Cluster()
	c.Client.(*fake.Clientset).PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
	r, err := Load(t.Context(), c, clustertest.Now)
	if err != nil || r.Bad() || len(r.Problems) != 1 || !strings.HasSuffix(draw(r), "\n\n! Not checked: nodes: list the nodes: no\n") {
		t.Errorf("%v\n%s", err, draw(r))
	}
}

// TestClusterFindings draws findings that belong to no node.
func TestClusterFindings(t *testing.T) {
	h := newNodesScene(t)
	h.system("tessera-installer", "i", "x")
	h.Add(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "tessera-installer"}})
	h.gpuNode.Status.History = []v1alpha1.RemediationRecord{
		{GPU: "gpu-x", Faults: []string{"XID 48"}, Outcome: v1alpha1.OutcomeRecovered, Began: ago(time.Hour), Ended: ago(time.Hour)},
	}
	want := `2 nodes healthy. 1 cluster finding.

Cluster
  Critical  no replica of tessera-installer is the leader: none of them is active
            next    kubectl -n tessera-system logs i

gpu-a   8 GPUs   driver 580.65.06   kernel 6.8.0-79-generic   healthy
  history   2026-01-02 02:04:05Z gpu-x XID 48: Recovered after 0s
`
	if got := draw(h.report(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSummaryNamesFiveNodes checks that the summary counts the unhealthy nodes beyond the fifth.
func TestSummaryNamesFiveNodes(t *testing.T) {
	r := Report{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		r.Nodes = append(r.Nodes, Node{Name: name, Severity: "Warning", Findings: []Finding{{Severity: "Warning"}}})
	}
	if got, want := r.summarize(), "7 of 7 nodes unhealthy: a Warning, b Warning, c Warning, d Warning, e Warning and 2 more."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var out bytes.Buffer
	Draw(&output.Screen{Out: &out, Width: 200, Color: true}, Report{Summary: r.summarize(), Nodes: r.Nodes[:1]})
	if !strings.HasPrefix(out.String(), "\x1b[33m") {
		t.Errorf("warnings only: the summary is not yellow: %q", out.String())
	}
}

// TestCommand covers the errors of the command line and of the connection: all have exit status 2.
func TestCommand(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: " + server.URL + "}}]\ncontexts: [{name: c, context: {cluster: c}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args       []string
		kubeconfig string
		want       string
	}{
		"another format": {[]string{"-o", "wide"}, kubeconfig, "must be one of text, name, json, yaml"},
		"unknown flag":   {[]string{"--nodes", "a"}, kubeconfig, "unknown flag: --nodes"},
		"no kubeconfig":  {nil, "/nonexistent/kubeconfig", "load the kubeconfig"},
		"unknown color":  {[]string{"--color", "blue"}, kubeconfig, `--color "blue"`},
		"forbidden":      {nil, kubeconfig, "list the ResourceSlices"},
	} {
		flags := cluster.NewFlags()
		*flags.KubeConfig = test.kubeconfig
		cmd := Command(flags)
		cmd.SetArgs(append([]string{}, test.args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if output.Status(err) != 2 || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %d, %v; want 2, %q", name, output.Status(err), err, test.want)
		}
	}
}

// full is a writer without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteError(t *testing.T) {
	for _, format := range []output.Format{output.Text, output.JSON} {
		err := run(t.Context(), newNodesScene(t).Cluster(), request{answer: output.Flags{Format: format, Color: "never"}, now: clustertest.Now, out: full{}})
		if output.Status(err) != 2 || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestInterrupted ends the context while pods are listed: there is no report.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newNodesScene(t).Cluster()
	c.Client.(*fake.Clientset).PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, context.Canceled
	})
	if r, err := Load(ctx, c, clustertest.Now); !errors.Is(err, context.Canceled) || len(r.Nodes) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
