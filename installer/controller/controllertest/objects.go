package controllertest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/render"
)

// ServingNode returns a Node in service.
func ServingNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelReady: "true", v1alpha1.LabelAgent: "default",
		}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{BootID: "b"}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// AgentPod returns the ready pod of a node's agent.
func AgentPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "agent-" + node, UID: "agent", Labels: map[string]string{render.LabelName: render.OperandNodeAgent},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}},
	}
}

// FaultyNode returns the GPUNode of a validated node with its host's driver, with these faults.
func FaultyNode(name string, faults ...v1alpha1.GPUFault) *v1alpha1.GPUNode {
	at := metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.GPUNodeSpec{Driver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost}},
		Status: v1alpha1.GPUNodeStatus{
			Phase: v1alpha1.PhaseReady, LastGoodDriver: &v1alpha1.DesiredDriver{Source: v1alpha1.DriverHost}, Validated: &v1alpha1.Validated{BootID: "b", At: at},
			Hardware: &v1alpha1.HardwareStatus{BootID: "b", GPUs: 2, OS: "debian12", CDI: true, HostDriver: "580.1", LoadedDriver: "580.1"},
			Agent: &v1alpha1.AgentStatus{
				PodUID: "agent", BootID: "b", Ready: true, DriverVersion: "580.1", GPUs: 2, Faults: faults,
			},
		},
	}
}

// NodeInRemediation returns the GPUNode n with an XID 95 on its first GPU, whose remediation is at a step.
func NodeInRemediation(t *testing.T, step v1alpha1.RemediationStep, reason string, attempts int32) *v1alpha1.GPUNode {
	t.Helper()
	fault := XIDFault(t, "n", 0, 95, "Reset")
	node, at := FaultyNode("n", fault), metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
	node.Spec.Remediations = []v1alpha1.Remediation{{ID: "one", GPU: fault.GPU, Step: v1alpha1.OrderHold, Since: at, Reason: "r"}}
	node.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: fault.GPU, Step: step, Reason: reason, ID: "one", Attempts: attempts, Since: at, Began: &at, Faults: []string{"XID 95"}}}
	node.Status.Agent.Remediations = []v1alpha1.AgentRemediation{{ID: "one", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}}
	return node
}

// GPU returns a GPU of a node.
func GPU(t *testing.T, node string, index int) gpu.GPU {
	t.Helper()
	return machineNode(t, node).GPUs[index]
}

// WholeGPU returns the name of the device that is a whole GPU of a node.
func WholeGPU(t *testing.T, node string, index int) string {
	t.Helper()
	return wire.DeviceName(gpu.Device{GPU: GPU(t, node, index).Name(), Use: gpu.Use{Shape: gpu.Whole}})
}

func machineNode(t *testing.T, name string) gpu.Node {
	t.Helper()
	machine, err := catalog.FindMachine("h100x2")
	if err != nil {
		t.Fatal(err)
	}
	node, err := machine.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// ResourceSlices returns what the agent of a node publishes.
func ResourceSlices(t *testing.T, name string) []client.Object {
	t.Helper()
	pool, err := wire.Encode(machineNode(t, name), wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.MIG, gpu.Monitor}}})
	if err != nil {
		t.Fatal(err)
	}
	var all []client.Object
	for i, s := range pool.Slices {
		all = append(all, &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: v1alpha1.DriverName, NodeName: &name, SharedCounters: s.SharedCounters, Devices: s.Devices,
				Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
			},
		})
	}
	return all
}

// User returns a pod of a Job, with a claim that has a device of a node.
func User(name, node, device string) []client.Object {
	key := metav1.ObjectMeta{Namespace: "users", Name: name}
	pod := &corev1.Pod{ObjectMeta: key, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.UID, pod.OwnerReferences = types.UID("uid-of-"+name), []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
	return []client.Object{pod, &resourceapi.ResourceClaim{ObjectMeta: key, Status: resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Driver: v1alpha1.DriverName, Pool: wire.PoolName(node, v1alpha1.DriverName), Device: device},
		}}},
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}},
	}}}
}

// XIDFault returns a Fatal fault of a GPU of a node, a minute old.
func XIDFault(t *testing.T, node string, index int, xid int32, remedy string) v1alpha1.GPUFault {
	t.Helper()
	g := GPU(t, node, index)
	return v1alpha1.GPUFault{
		GPU: g.Name(), UUID: g.UUID, Signal: "xid", XID: xid, Severity: gpu.Fatal.String(), Remedy: remedy, BootID: "b",
		Since: metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy(),
	}
}
