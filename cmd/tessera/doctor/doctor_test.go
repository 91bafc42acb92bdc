package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
	"github.com/tessera-gpu/tessera/internal/capability"
)

var ago = clustertest.Ago

// nodesScene is a cluster with two healthy nodes: gpu-a with eight H100, an installer and an agent; gpu-b with a T4 and an agent only.
type nodesScene struct {
	*clustertest.Scene
	a, b           gpu.Node
	gpuNode        *v1alpha1.GPUNode
	policy         *v1alpha1.ClusterPolicy
	agentA, agentB *corev1.Pod
}

// kubelet sets the version that the kubelet of a node reports.
func (h *nodesScene) kubelet(name, version string) {
	for _, object := range h.Objects {
		if node, ok := object.(*corev1.Node); ok && node.Name == name {
			node.Status.NodeInfo.KubeletVersion = version
		}
	}
}

func newNodesScene(t *testing.T) *nodesScene {
	t.Helper()
	h := &nodesScene{Scene: clustertest.New(t)}
	h.a, h.b = h.Node("gpu-a", "h100x8", nil), h.Node("gpu-b", "t4x1", nil)
	for _, object := range h.Objects {
		if node, ok := object.(*corev1.Node); ok {
			node.Status.NodeInfo.BootID, node.Status.NodeInfo.KernelVersion = "boot-2", "6.8.0-79-generic"
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
	}
	h.agentA, h.agentB = h.system("tessera-node", "agent-a", "gpu-a"), h.system("tessera-node", "agent-b", "gpu-b")
	h.gpuNode = h.GPUNode("gpu-a")
	h.policy = &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	h.policy.Spec.Remediation.Mode = v1alpha1.RemediationAct
	h.Add(h.policy)
	h.user("train", clustertest.Result(h.a, 0, gpu.Use{Shape: gpu.Whole}))
	h.user("chat", clustertest.Result(h.a, 2, clustertest.MIGUse(14, 2, 2)))
	h.user("embed", clustertest.Result(h.a, 2, clustertest.MIGUse(19, 0, 1)))
	h.Claim("spare", "mig.tessera.dev", clustertest.Result(h.a, 2, clustertest.MIGUse(14, 4, 2)))
	h.user("render", clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.Whole}))
	return h
}

// system adds a ready pod of a Tessera component.
func (h *nodesScene) system(app, name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": app}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	h.Add(pod)
	return pod
}

// user adds a claim with the device and a running pod of the same name with a healthy device.
func (h *nodesScene) user(name string, result resourceapi.DeviceRequestAllocationResult) {
	claim := h.Claim(name, "gpu.tessera.dev", result)
	clustertest.Report(claim, 0, "", metav1.Condition{Status: metav1.ConditionTrue, Reason: "Prepared"})
	h.Pod(name, "gpu-a", corev1.PodRunning, claim)
	h.reportHealth(name, corev1.ResourceHealthStatusHealthy, "")
}

func (h *nodesScene) pod(name string) *corev1.Pod {
	for _, object := range h.Objects {
		if pod, ok := object.(*corev1.Pod); ok && pod.Name == name {
			return pod
		}
	}
	return nil
}

// reportHealth writes the device's health into the pod's status, as kubelet does.
func (h *nodesScene) reportHealth(pod string, health corev1.ResourceHealthStatus, message string) {
	h.pod(pod).Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResourcesStatus: []corev1.ResourceStatus{
		{Name: "cpu"},
		{Name: "claim:gpu/gpu", Resources: []corev1.ResourceHealth{{ResourceID: "k8s.gpu.tessera.dev/claim=x", Health: health, Message: &message}}},
	}}}
}

// fault adds a fault to the agent's report in the GPUNode of gpu-a.
func (h *nodesScene) fault(index int, f v1alpha1.GPUFault) {
	f.GPU, f.BootID, f.Since = h.a.GPUs[index].Name(), "boot-2", ago(3*time.Minute)
	h.gpuNode.Status.Agent.Faults = append(h.gpuNode.Status.Agent.Faults, f)
}

// suggested adds a remediation of gpu-a's GPU that waits for mode Act.
func (h *nodesScene) suggested(index int) {
	h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[index].Name(), Step: v1alpha1.RemediationStepSuggested}}
}

// deleteSlices removes the node's ResourceSlices, as kubelet does when an agent is gone.
func (h *nodesScene) deleteSlices(node string) {
	h.Objects = slices.DeleteFunc(h.Objects, func(o runtime.Object) bool {
		slice, is := o.(*resourceapi.ResourceSlice)
		return is && *slice.Spec.NodeName == node
	})
}

func (h *nodesScene) report(t *testing.T) Report {
	t.Helper()
	r, err := Load(t.Context(), h.Cluster(), clustertest.Now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deviceOf returns the name of a MIG device of gpu-a's GPU 2.
func (h *nodesScene) deviceOf(use gpu.Use) string {
	return wire.DeviceName(gpu.Device{GPU: h.a.GPUs[2].Name(), Use: use})
}

var xid95 = v1alpha1.GPUFault{Signal: "xid", XID: 95, Severity: "Fatal", Remedy: "Reset"}

// findingTest is a change of a healthy cluster with one expected finding.
type findingTest struct {
	change   func(*nodesScene)
	node     string
	severity string
	reason   Reason
	// want are texts that the drawn report contains, never those that it must not contain.
	want, never []string
}

// TestFindings introduces one fault per case into a healthy cluster.
func TestFindings(t *testing.T) {
	checkFindings(t, map[string]findingTest{
		"a fault in the agent's report": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.reportHealth("train", corev1.ResourceHealthStatusUnhealthy, "XID 95")
			},
			"gpu-a", "Fatal", ReasonFault,
			[]string{"GPU 0 (gpu-0000-1b-00-0): XID 95: ", ", since 3m", "demo/train (Running), claim train, device gpu-0000-1b-00-0: Unhealthy: XID 95", "1 pod affected"},
			[]string{"demo/chat", "no installer"},
		},
		"a fault in taints only, without an installer": {
			func(h *nodesScene) {
				h.Taint("gpu-b", 0, gpu.Placement{}, "xid", "48", resourceapi.DeviceTaintEffectNoSchedule, ago(time.Minute))
			},
			"gpu-b", "Fatal", ReasonFault,
			[]string{"XID 48", "demo/render", "none: no installer manages this node", "without an installer: drain node gpu-b and reboot it"}, []string{"by hand"},
		},
		"a fault of one MIG device": {
			func(h *nodesScene) {
				h.fault(2, v1alpha1.GPUFault{Signal: "xid", XID: 94, Severity: "Critical", Remedy: "Restart", Device: h.deviceOf(clustertest.MIGUse(14, 2, 2))})
			},
			"gpu-a", "Critical", ReasonFault,
			[]string{"memory slices 2, 3: XID 94", "demo/chat"}, []string{"demo/embed", "demo/spare"},
		},
		"a claim without pods on a faulted GPU": {
			func(h *nodesScene) { h.fault(2, xid95) },
			"gpu-a", "Fatal", ReasonFault, []string{"claim demo/spare, used by no pod", "2 pods affected"}, nil,
		},
		"a warning without remediation": {
			func(h *nodesScene) {
				h.fault(5, v1alpha1.GPUFault{Signal: "heat", Severity: "Warning", Remedy: "Wait"})
			},
			"gpu-a", "Warning", ReasonFault, []string{"heat: ", "airflow"}, []string{"none: "},
		},
		"a lost GPU": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "lost", Severity: "Critical", Remedy: "Wait", Message: "the GPU does not respond"})
			},
			"gpu-a", "Critical", ReasonFault, []string{"lost: the GPU does not respond", "demo/train", "the fault clears when its condition is absent"}, nil,
		},
		"a remediation in progress": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Spec.Remediations = []v1alpha1.Remediation{{ID: "1", GPU: h.a.GPUs[0].Name(), Step: v1alpha1.OrderHold}}
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepDrain, Message: "2 pods are evicted", Since: ago(time.Second * 4), Attempts: 1}}
				h.gpuNode.Status.Agent.Remediations = []v1alpha1.AgentRemediation{{ID: "1", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"Drain for 4s, 1 reset so far: 2 pods are evicted", "agent: Holding, 1 claim prepared"}, nil,
		},
		"a suggestion": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepSuggested, Message: "1 pod would be evicted"}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"1 pod would be evicted", "remediation.mode: Act does this automatically"}, nil,
		},
		"a suggestion, and heat": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "heat", Severity: "Warning", Remedy: "Wait"})
				h.fault(0, v1alpha1.GPUFault{Signal: "xid", XID: 121, Severity: "Warning", Remedy: "Reset"})
				h.fault(0, v1alpha1.GPUFault{Signal: "lost", Severity: "Critical", Remedy: "Wait"})
				h.suggested(0)
			},
			"gpu-a", "Critical", ReasonFault, []string{"airflow", "trains the link", "kernel log"}, []string{"mode: Act"},
		},
		"a suggestion, of a reboot": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reboot"})
				h.fault(0, xid95)
				h.suggested(0)
			},
			"gpu-a", "Fatal", ReasonFault, []string{"with remediation.mode: Act the installer requests a reboot of the node"}, []string{"does this automatically"},
		},
		"a suggestion, of a reboot that the policy forbids": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reboot"})
				h.policy.Spec.Remediation.Reboot = new(false)
				h.suggested(0)
			},
			"gpu-a", "Fatal", ReasonFault, []string{"with remediation.mode: Act the installer requests manual intervention"}, []string{"does this automatically", "requests a reboot"},
		},
		"a suggestion, of another GPU": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "remap-failed", Severity: "Fatal", Remedy: "Replace"})
				h.suggested(0)
			},
			"gpu-a", "Fatal", ReasonFault, []string{"with remediation.mode: Act the installer requests manual intervention"}, []string{"does this automatically", "requests a reboot"},
		},
		"a requested reboot": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "xid", XID: 79, Severity: "Fatal", Remedy: "Reboot"})
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepRebootRequested}}
				h.gpuNode.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRebootRequired, Status: metav1.ConditionTrue}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"reboot node gpu-a"}, []string{"reboot required"},
		},
		"a requested reboot without a fault": {
			func(h *nodesScene) {
				h.gpuNode.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRebootRequired, Status: metav1.ConditionTrue, Message: "GPU 0"}}
			},
			"gpu-a", "Critical", ReasonRebootRequired, []string{"reboot required: GPU 0", "reboot node gpu-a"}, nil,
		},
		"a GPU to replace": {
			func(h *nodesScene) {
				h.fault(0, v1alpha1.GPUFault{Signal: "remap-failed", Severity: "Fatal", Remedy: "Replace"})
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepReplace}}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"replace the GPU (GPU-"}, nil,
		},
		"paused on the GPUNode": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: "true"}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"paused by the annotation tessera.dev/pause-remediation of the GPUNode"}, nil,
		},
		"paused on the policy": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.policy.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: "true"}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"of the ClusterPolicy"}, nil,
		},
		"paused with an empty annotation": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: ""}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"paused by the annotation tessera.dev/pause-remediation of the GPUNode"}, nil,
		},
		"not paused": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.gpuNode.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: "false"}
				h.policy.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: "false"}
			},
			"gpu-a", "Fatal", ReasonFault, []string{"XID 95"}, []string{"paused"},
		},
		"remediation off": {
			func(h *nodesScene) {
				h.fault(0, xid95)
				h.policy.Spec.Remediation.Mode = v1alpha1.RemediationOff
			},
			"gpu-a", "Fatal", ReasonFault, []string{"spec.remediation.mode of the ClusterPolicy is Off"}, nil,
		},
		"held without a fault": {
			func(h *nodesScene) {
				h.gpuNode.Spec.Remediations = []v1alpha1.Remediation{{ID: "1", GPU: h.a.GPUs[6].Name(), Reason: "being validated", Since: ago(9 * time.Second)}}
				h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[6].Name(), Step: v1alpha1.RemediationStepValidate, Since: ago(time.Second)}}
			},
			"gpu-a", "Warning", ReasonHeld, []string{"out of service for remediation: being validated, since 9s", "Validate for 1s"}, nil,
		},
		"an unhealthy device in a pod's status only": {
			func(h *nodesScene) { h.reportHealth("embed", corev1.ResourceHealthStatusUnhealthy, "XID 95") },
			"gpu-a", "Critical", ReasonPodUnhealthy, []string{"the status of pod demo/embed reports Unhealthy", "Unhealthy: XID 95"}, nil,
		},
		"an unknown device in a pod's status": {
			func(h *nodesScene) { h.reportHealth("embed", corev1.ResourceHealthStatusUnknown, "") },
			"gpu-a", "Warning", ReasonPodUnhealthy, []string{"reports Unknown", "has had no report from the agent for 30 s"}, nil,
		},
		"a claim that is refused": {
			func(h *nodesScene) {
				claim := h.Claim("late", "gpu.tessera.dev", clustertest.Result(h.a, 5, gpu.Use{Shape: gpu.Whole}))
				clustertest.Report(claim, 0, "", metav1.Condition{Status: metav1.ConditionFalse, Reason: "DeviceBusy", Message: "a process has it open"})
				h.Pod("late", "gpu-a", corev1.PodPending, claim)
			},
			"gpu-a", "Warning", ReasonRefused, []string{"claim demo/late is not prepared: DeviceBusy: a process has it open", "demo/late (Pending)"}, nil,
		},
		"a claim on a device that is not published": {
			func(h *nodesScene) {
				result := clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.VFIO})
				h.user("old", result)
			},
			"gpu-b", "Critical", ReasonDeviceGone, []string{"which is no longer published", "demo/old (Running)"}, nil,
		},
		"MIG devices of another program": {
			func(h *nodesScene) {
				h.Node("gpu-c", "h100x8", func(n *gpu.Node) { n.GPUs[2].Withheld = gpu.SpanMask(1, 2) })
			},
			"gpu-c", "Critical", ReasonWithheld, []string{"memory slices 1, 2 are withheld", "mig -lgi"}, nil,
		},
		"two claims on one GPU": {
			func(h *nodesScene) { h.user("second", clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.Whole})) },
			"gpu-b", "Critical", ReasonConflict, []string{"overlaps with other allocations"}, nil,
		},
		"a taint of another program": {
			func(h *nodesScene) {
				h.Taint("gpu-b", 0, gpu.Placement{}, "mine", "yes", resourceapi.DeviceTaintEffectNoSchedule, ago(time.Minute))
			},
			"gpu-b", "Warning", ReasonTainted, []string{"tainted gpu.tessera.dev/mine=yes:NoSchedule"}, nil,
		},
		"a rule of another program": {
			func(h *nodesScene) {
				pool := "gpu-b-gpu.tessera.dev"
				for _, name := range []string{"others", "tessera-maintenance-gpu-a"} {
					rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name}}
					rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Pool: &pool}
					rule.Spec.Taint = resourceapi.DeviceTaint{Key: "example.com/audit", Effect: resourceapi.DeviceTaintEffectNoSchedule}
					h.Add(rule)
				}
				driver := v1alpha1.DriverName // the rule that the chart's defaults create
				reserved := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "scheduler." + driver}}
				reserved.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: &driver}
				reserved.Spec.Taint = resourceapi.DeviceTaint{Key: v1alpha1.TaintScheduler, Effect: resourceapi.DeviceTaintEffectNoSchedule}
				h.Add(reserved)
			},
			"gpu-b", "Warning", ReasonTainted, []string{"DeviceTaintRule others taints devices of the node: example.com/audit:NoSchedule"},
			[]string{"tessera-maintenance", "scheduler.gpu.tessera.dev"},
		},
		"a node that is not ready": {
			func(h *nodesScene) {
				for _, object := range h.Objects {
					if node, ok := object.(*corev1.Node); ok && node.Name == "gpu-b" {
						node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped posting", LastTransitionTime: ago(time.Hour)}
					}
				}
			},
			"gpu-b", "Critical", ReasonNodeNotReady, []string{"the node is not Ready: kubelet stopped posting, since 60m", "demo/render"}, nil,
		},
		"no agent": {
			func(h *nodesScene) { h.agentB.Spec.NodeName = "elsewhere" },
			"gpu-b", "Critical", ReasonAgentMissing, []string{"no agent on the node", "demo/render"}, nil,
		},
		"an agent that crashes": {
			func(h *nodesScene) {
				h.agentB.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: ago(time.Minute)}}
				h.agentB.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}}}
			},
			"gpu-b", "Critical", ReasonAgentNotReady, []string{"pod agent-b is Running, container agent is waiting: CrashLoopBackOff: back-off, since 60s", "logs agent-b"}, nil,
		},
		"an agent that never became ready": {
			func(h *nodesScene) {
				h.system("tessera-node", "agent-d", "gpu-d").Status = corev1.PodStatus{Phase: corev1.PodPending}
			},
			"gpu-d", "Critical", ReasonAgentNotReady, []string{"pod agent-d is Pending"}, nil,
		},
		"an agent's report of the previous boot": {
			func(h *nodesScene) { h.gpuNode.Status.Agent.BootID = "boot-1" },
			"gpu-a", "Critical", ReasonAgentNotReporting, []string{"no report from the agent since the node booted"}, nil,
		},
		"a driver that is missing": {
			func(h *nodesScene) {
				h.system("tessera-node", "agent-d", "gpu-d")
				node := h.GPUNode("gpu-d")
				node.Status.Agent.DriverVersion, node.Status.Agent.GPUs = "", 0
			},
			"gpu-d", "Critical", ReasonDriverMissing, []string{"8 GPUs, but no working driver", "but no device is published"}, nil,
		},
		"GPUs that the driver does not see": {
			func(h *nodesScene) { h.gpuNode.Status.Agent.GPUs = 7 },
			"gpu-a", "Critical", ReasonGPUsMissing, []string{"lists 7 of the 8 GPUs"}, nil,
		},
		"NVIDIA's runtime as the default": {
			func(h *nodesScene) {
				h.gpuNode.Status.Hardware.Runtime, h.gpuNode.Status.Hardware.NVIDIARuntime = "containerd://2.2.1", "nvidia"
			},
			"gpu-a", "Warning", ReasonNVIDIARuntimeDefault, []string{"containerd://2.2.1", "handler nvidia", "remove default_runtime_name"}, nil,
		},
		"missing ResourceSlices": {
			func(h *nodesScene) {
				for _, object := range h.Objects {
					if slice, ok := object.(*resourceapi.ResourceSlice); ok && *slice.Spec.NodeName == "gpu-b" {
						h.Objects = slices.DeleteFunc(h.Objects, func(o runtime.Object) bool { return o == runtime.Object(slice) })
						newer := slice.DeepCopy()
						newer.Name, newer.Spec.Pool.Generation, newer.Spec.Pool.ResourceSliceCount = slice.Name+"-new", 2, 9
						h.Add(slice, newer)
						return
					}
				}
			},
			"gpu-b", "Critical", ReasonResourceSlicesIncomplete, []string{"ResourceSlices are missing", "two generations"}, nil,
		},
		"an agent that is gone with its ResourceSlices": {
			func(h *nodesScene) {
				h.agentB.Spec.NodeName = ""
				h.deleteSlices("gpu-b")
			},
			"gpu-b", "Critical", ReasonAgentMissing, []string{"no agent on the node", "pool gpu-b-gpu.tessera.dev is not published", "their pods are not served", "demo/render (Running)", "1 of 2 nodes unhealthy", "1 pod affected"}, []string{"demo/train"},
		},
		"an agent that publishes nothing": {
			func(h *nodesScene) { h.deleteSlices("gpu-b") },
			"gpu-b", "Critical", ReasonNoResourceSlices, []string{"pool gpu-b-gpu.tessera.dev is not published", "demo/render (Running)", "logs agent-b"}, []string{"no agent on the node"},
		},
		"a node of the installer without ResourceSlices": {
			func(h *nodesScene) { h.deleteSlices("gpu-a") },
			"gpu-a", "Critical", ReasonNoResourceSlices, []string{"pool gpu-a-gpu.tessera.dev is not published", "demo/train (Running)"}, []string{"but no device is published"},
		},
		"a maintenance": {
			func(h *nodesScene) {
				h.gpuNode.Spec.Maintenance = &v1alpha1.Maintenance{ID: "1", Operation: v1alpha1.OperationDriverSwap, Reason: "driver 580.105.08", Since: ago(time.Minute)}
				h.gpuNode.Status.Phase, h.gpuNode.Status.Step, h.gpuNode.Status.Reason = v1alpha1.PhaseUpgrading, v1alpha1.StepDrain, "Draining"
			},
			"gpu-a", "Warning", ReasonMaintenance, []string{"out of service for DriverSwap: driver 580.105.08, since 60s", "Upgrading Drain: Draining", "demo/train"}, nil,
		},
		"a maintenance that is stuck": {
			func(h *nodesScene) {
				h.gpuNode.Spec.Maintenance = &v1alpha1.Maintenance{ID: "1", Operation: v1alpha1.OperationDriverSwap, Since: ago(time.Minute)}
				h.gpuNode.Status.Phase, h.gpuNode.Status.Reason, h.gpuNode.Status.Message = v1alpha1.PhaseFailed, "DriverFailed", "no headers"
			},
			"gpu-a", "Critical", ReasonMaintenance, []string{"DriverFailed: no headers"}, nil,
		},
		"an old kubelet without an installer": {
			func(h *nodesScene) { h.kubelet("gpu-b", "v1.35.4") },
			"gpu-b", "Critical", ReasonKubeletTooOld, []string{"kubelet has version v1.35.4 and 1.36 is required", "upgrade kubelet"}, nil,
		},
		"an old kubelet, blocked by the installer": {
			func(h *nodesScene) {
				h.kubelet("gpu-a", "v1.35.4")
				h.gpuNode.Status.Phase, h.gpuNode.Status.Reason, h.gpuNode.Status.Message = v1alpha1.PhaseBlocked, "KubeletTooOld", "upgrade it"
			},
			"gpu-a", "Critical", ReasonNotInService, []string{"Blocked: KubeletTooOld: upgrade it"}, []string{"is required"},
		},
		"a node that is blocked": {
			func(h *nodesScene) {
				h.gpuNode.Status.Phase, h.gpuNode.Status.Reason, h.gpuNode.Status.Message = v1alpha1.PhaseBlocked, "DevicePluginPresent", "remove it"
			},
			"gpu-a", "Critical", ReasonNotInService, []string{"Blocked: DevicePluginPresent: remove it"}, nil,
		},
	})
}

// checkFindings expects the finding on the first node of the report and the texts in the drawn report.
func checkFindings(t *testing.T, tests map[string]findingTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newNodesScene(t)
			test.change(h)
			r := h.report(t)
			if len(r.Nodes) == 0 || r.Nodes[0].Name != test.node || r.Nodes[0].Severity != test.severity {
				t.Errorf("the first node is %+v, want %s, %s", r.Nodes[0], test.node, test.severity)
			}
			if !slices.ContainsFunc(r.Nodes[0].Findings, func(f Finding) bool { return f.Reason == test.reason }) {
				t.Errorf("no finding is %s", test.reason)
			}
			if bad := gpu.Warning.String() != test.severity; r.Bad() != bad {
				t.Errorf("bad: %t, want %t", r.Bad(), bad)
			}
			text := draw(r)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %q", want)
				}
			}
			for _, never := range test.never {
				if strings.Contains(text, never) {
					t.Errorf("contains %q", never)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// draw returns the report as drawn on a screen that is wide enough for every line.
func draw(r Report) string {
	var out bytes.Buffer
	Draw(&output.Screen{Out: &out, Width: 10000}, r)
	return out.String()
}

// TestHealthyCluster expects no finding in an unchanged cluster.
func TestHealthyCluster(t *testing.T) {
	r := newNodesScene(t).report(t)
	if r.Bad() || r.Summary != "2 nodes healthy." || len(r.Nodes) != 2 || draw(r) != r.Summary+"\n" {
		t.Errorf("%s", draw(r))
	}
	empty := &nodesScene{Scene: clustertest.New(t)}
	if r := empty.report(t); r.Bad() || draw(r) != "No nodes with GPUs of Tessera.\n" {
		t.Errorf("empty: %s", draw(r))
	}
}

// TestIgnoresOtherDrivers checks that claims on devices of other drivers cause no finding, however their pools are named.
func TestIgnoresOtherDrivers(t *testing.T) {
	h := newNodesScene(t)
	other := clustertest.Result(h.b, 0, gpu.Use{Shape: gpu.Whole})
	other.Driver, other.Pool = "net.example.com", "gpu-c-net.example.com"
	h.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-c"}})
	h.user("net", other)
	if r := h.report(t); r.Bad() || len(r.Nodes) != 2 {
		t.Errorf("%s", draw(r))
	}
}

// TestComponents covers the findings about scheduler and installer.
func TestComponents(t *testing.T) {
	lease := func(name, holder string, renewed time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: name}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: clustertest.Now.Add(-renewed)},
		}}
	}
	tests := map[string]struct {
		scene func(*nodesScene)
		want  Reason
	}{
		"leader": {func(h *nodesScene) {
			h.system("tessera-scheduler", "s", "x")
			h.Add(lease("tessera-scheduler", "s", time.Second))
		}, ""},
		"expired leader": {func(h *nodesScene) {
			h.system("tessera-scheduler", "s", "x")
			h.Add(lease("tessera-scheduler", "s", time.Minute))
		}, ReasonNoLeader},
		"released lease": {func(h *nodesScene) {
			h.system("tessera-installer", "s", "x")
			h.Add(lease("tessera-installer", "", time.Second))
		}, ReasonNoLeader},
		"lease without pods": {func(h *nodesScene) { h.Add(lease("tessera-scheduler", "s", time.Hour)) }, ""},
		"not ready":          {func(h *nodesScene) { h.system("tessera-scheduler", "s", "x").Status.Conditions = nil }, ReasonComponentNotReady},
	}
	for name, test := range tests {
		h := newNodesScene(t)
		test.scene(h)
		r := h.report(t)
		var got Reason
		if len(r.Cluster) > 0 {
			got = r.Cluster[0].Reason
		}
		if got != test.want || r.Bad() != (test.want != "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// faultyScene is a cluster with several findings at once.
func faultyScene(t *testing.T) *nodesScene {
	t.Helper()
	h := newNodesScene(t)
	h.fault(0, v1alpha1.GPUFault{Signal: "xid", XID: 95, Severity: "Fatal", Remedy: "Reset"})
	h.reportHealth("train", corev1.ResourceHealthStatusUnhealthy, "XID 95 on GPU gpu-0000-1b-00-0")
	h.fault(2, v1alpha1.GPUFault{Signal: "xid", XID: 94, Severity: "Critical", Remedy: "Restart", Device: h.deviceOf(clustertest.MIGUse(14, 2, 2))})
	h.fault(5, v1alpha1.GPUFault{Signal: "heat", Severity: "Warning", Remedy: "Wait"})
	h.gpuNode.Spec.Remediations = []v1alpha1.Remediation{{ID: "1", GPU: h.a.GPUs[0].Name(), Step: v1alpha1.OrderHold, Since: ago(2 * time.Minute)}}
	h.gpuNode.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: h.a.GPUs[0].Name(), Step: v1alpha1.RemediationStepDrain, Message: "1 pod is evicted", Since: ago(time.Minute)}}
	h.gpuNode.Status.Agent.Remediations = []v1alpha1.AgentRemediation{{ID: "1", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}}
	h.gpuNode.Status.History = []v1alpha1.RemediationRecord{{
		GPU: h.a.GPUs[4].Name(), Faults: []string{"XID 48"}, Outcome: v1alpha1.OutcomeRecovered, Message: "reset and validated", Began: ago(26 * time.Hour), Ended: ago(26*time.Hour - 40*time.Second),
	}}
	h.agentB.Status.Conditions = nil
	return h
}

func TestOutput(t *testing.T) {
	for file, answer := range map[string]output.Flags{
		"faults.txt": {Format: output.Text, Color: "auto"}, "faults-color.txt": {Format: output.Text, Color: "always"},
		"faults.json": {Format: output.JSON, Color: "auto"}, "faults.yaml": {Format: output.YAML, Color: "auto"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), faultyScene(t).Cluster(), request{answer: answer, now: clustertest.Now, out: &out})
		if output.Status(err) != 1 {
			t.Errorf("%s: exit status %d: %v", file, output.Status(err), err)
		}
		outputtest.Golden(t, file, out.String())
	}
}

// TestNamedNodes checks that a node that is named is drawn with its versions although it is healthy, and without the driver of another boot.
func TestNamedNodes(t *testing.T) {
	h := newNodesScene(t)
	r := h.report(t)
	if err := r.keepNodes([]string{"gpu-a"}); err != nil {
		t.Fatal(err)
	}
	want := "1 node healthy.\n\ngpu-a   8 GPUs   driver 580.65.06   kernel 6.8.0-79-generic   healthy\n"
	if got := draw(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	h.gpuNode.Status.Agent.BootID = "boot-1"
	if got := h.report(t).Nodes[0]; got.Name != "gpu-a" || got.Driver != "" || got.Kernel != "6.8.0-79-generic" {
		t.Errorf("after a reboot: driver %q, kernel %q", got.Driver, got.Kernel)
	}
}

// TestExitStatus covers the exit status of the verb and its error.
func TestExitStatus(t *testing.T) {
	forbid := func(resource string) func(*fake.Clientset) {
		return func(c *fake.Clientset) {
			c.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
			})
		}
	}
	tests := map[string]struct {
		change func(*fake.Clientset)
		nodes  []string
		format output.Format
		fault  bool
		want   int
		text   string
	}{
		"healthy":                     {want: 0},
		"fault":                       {fault: true, want: 1, text: "Critical or Fatal"},
		"fault of another node":       {fault: true, nodes: []string{"gpu-b"}, want: 0},
		"unknown node":                {nodes: []string{"gpu-z"}, want: 2, text: `node "gpu-z" has no GPUs of Tessera; nodes with GPUs: gpu-a, gpu-b`},
		"ResourceSlices forbidden":    {change: forbid("resourceslices"), want: 2, text: "list the ResourceSlices"},
		"pods forbidden":              {change: forbid("pods"), want: 2, text: "not everything could be checked"},
		"pods forbidden, and a fault": {change: forbid("pods"), fault: true, want: 1},
	}
	for name, test := range tests {
		h := newNodesScene(t)
		if test.fault {
			h.fault(0, xid95)
		}
		c := h.Cluster()
		if test.change != nil {
			test.change(c.Client.(*fake.Clientset))
		}
		var out bytes.Buffer
		err := run(t.Context(), c, request{nodes: test.nodes, answer: output.Flags{Format: output.JSON, Color: "auto"}, now: clustertest.Now, out: &out})
		if output.Status(err) != test.want || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %d, %v; want %d, %q", name, output.Status(err), err, test.want, test.text)
		}
		if test.change != nil && name != "ResourceSlices forbidden" {
			var r Report
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "Not checked: pods of users and of Tessera: list the pods") {
				t.Errorf("%s: problems %q, %v", name, r.Problems, err)
			}
			if slices.ContainsFunc(r.Nodes[0].Findings, func(f Finding) bool { return f.Reason == ReasonAgentMissing }) {
				t.Errorf("%s: agents reported as missing", name)
			}
		}
	}
}

// TestReducedFunctions lists what is reduced on the API server, which is no finding and does not change the exit status. The installer reports that the
// release has no scheduler for the version of Kubernetes.
func TestReducedFunctions(t *testing.T) {
	served := &capability.Server{TaintRules: true}
	for name, test := range map[string]struct {
		server    *capability.Server
		condition string
		want      string
	}{
		"not read":                        {},
		"with DeviceTaintRules":           {server: served},
		"without DeviceTaintRules":        {server: &capability.Server{}, want: "Reduced: tessera-scheduler does not run"},
		"without an image":                {server: served, condition: "no image", want: "Reduced: no image"},
		"without an image, server unread": {condition: "no image", want: "Reduced: no image"},
		"without both":                    {server: &capability.Server{}, condition: "no image", want: "Reduced: tessera-scheduler does not run"},
	} {
		scene := newNodesScene(t)
		if test.condition != "" {
			scene.policy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReduced, Status: metav1.ConditionTrue, Message: test.condition}}
		}
		c := scene.Cluster()
		c.Server = test.server
		var out bytes.Buffer
		err := run(t.Context(), c, request{answer: output.Flags{Format: output.Text, Color: "never"}, now: clustertest.Now, out: &out})
		got := out.String()
		if strings.Contains(got, "Reduced: ") != (test.want != "") || !strings.Contains(got, test.want) || err != nil {
			t.Errorf("%s: error %v; want %q:\n%s", name, err, test.want, got)
		}
	}
}
