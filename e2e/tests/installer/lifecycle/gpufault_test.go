package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// gpuFault is a fault of one GPU, and what the node's agent did about it.
type gpuFault struct {
	node string
	gpu.GPU
	xid    int32
	remedy string
	// failures is the number of resets that still fail. With a boot ID only a reboot of the node clears the fault.
	failures int
	boot     string
	cleared  bool
	since    metav1.Time
	// results are the states of resets, by the ID of the order.
	results map[string]v1alpha1.AgentRemediationState
}

// machineNode is a node with two GPUs.
func (w *world) machineNode(name string) gpu.Node {
	w.Helper()
	found, err := catalog.FindMachine("h100x2")
	w.must(err)
	node, err := found.Node(name)
	w.must(err)
	return node
}

// publish makes the slices of nodes with two GPUs, as their agents do.
func (w *world) publish(nodes ...string) {
	w.Helper()
	for _, name := range nodes {
		pool, err := wire.Encode(w.machineNode(name), wire.Options{Driver: v1alpha1.DriverName, Offer: gpu.Offer{Shapes: []gpu.Shape{gpu.Whole, gpu.Monitor}}})
		w.must(err)
		for i, s := range pool.Slices {
			w.must(w.admin.Create(w.Context(), &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: v1alpha1.DriverName, NodeName: &name, SharedCounters: s.SharedCounters, Devices: s.Devices,
					Pool: resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				},
			}))
		}
	}
}

// injectGPUFault gives a GPU a fatal XID that a reset ends, changed.
func (w *world) injectGPUFault(node string, index int, changes ...func(*gpuFault)) *gpuFault {
	w.Helper()
	fault := &gpuFault{
		node: node, GPU: w.machineNode(node).GPUs[index], xid: 95, remedy: "Reset", since: metav1.Now().Rfc3339Copy(),
		results: map[string]v1alpha1.AgentRemediationState{},
	}
	for _, change := range changes {
		change(fault)
	}
	w.configure(func(s *simulator) { s.gpuFaults = append(s.gpuFaults, fault) })
	return fault
}

// holder makes a pod of a user that holds a whole GPU.
func (w *world) holder(name, node string, index int) *corev1.Pod {
	w.Helper()
	device := w.machineNode(node).GPUs[index].Name()
	return w.user(name, node, func(pod *corev1.Pod) { pod.Annotations = map[string]string{annotationDevice: device} })
}

// observeRemedies records how many GPUs are out of service for a remediation. The mutex is held.
func (s *simulator) observeRemedies(node *v1alpha1.GPUNode) {
	s.heldGPUs[node.Name] = len(node.Spec.Remediations)
	sum := 0
	for _, n := range s.heldGPUs {
		sum += n
	}
	s.maxHeldGPUs = max(s.maxHeldGPUs, sum)
}

// syncHealth returns the faults and remediations that an agent reports. It resets a GPU that it is ordered to reset
// once no claim is prepared on it, one time per order.
func (s *simulator) syncHealth(ctx context.Context, now *snapshot, g *v1alpha1.GPUNode, m machine) ([]v1alpha1.GPUFault, []v1alpha1.AgentRemediation, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var remedies []v1alpha1.AgentRemediation
	for _, order := range g.Spec.Remediations {
		report := v1alpha1.AgentRemediation{ID: order.ID, State: v1alpha1.RemediationStateHolding, PreparedClaims: countPreparedOn(now, g.Name, order.GPU)}
		at := slices.IndexFunc(s.gpuFaults, func(f *gpuFault) bool { return f.node == g.Name && f.Name() == order.GPU })
		if at >= 0 {
			fault := s.gpuFaults[at]
			if order.Step == v1alpha1.OrderReset && report.PreparedClaims == 0 && fault.results[order.ID] == "" {
				if err := s.resetGPU(ctx, now, fault, order.ID); err != nil {
					return nil, nil, err
				}
			}
			if result := fault.results[order.ID]; result != "" && order.Step != v1alpha1.OrderHold {
				report.State = result
			}
		}
		remedies = append(remedies, report)
	}
	var faults []v1alpha1.GPUFault
	for _, f := range s.gpuFaults {
		f.cleared = f.cleared || f.boot != "" && f.boot != m.bootID()
		if f.cleared || f.node != g.Name {
			continue
		}
		faults = append(faults, v1alpha1.GPUFault{
			GPU: f.Name(), UUID: f.UUID, Signal: "xid", XID: f.xid, Severity: "Fatal", Remedy: f.remedy, Message: "it is not well", Since: f.since,
			BootID: m.bootID(),
		})
	}
	return faults, remedies, nil
}

// resetGPU resets a GPU and keeps the result. A running exporter is a violation: it uses all GPUs of its node, and
// the installer has to stop it before a reset. The mutex is held.
func (s *simulator) resetGPU(ctx context.Context, now *snapshot, f *gpuFault, order string) error {
	if exporter := findOperandPod(now, f.node, "tessera-dcgm-exporter"); exporter != nil {
		live, err := s.getLivePod(ctx, client.ObjectKeyFromObject(exporter), exporter.UID)
		if err != nil {
			return err
		}
		if live != nil && live.DeletionTimestamp == nil {
			s.violations = append(s.violations, "GPU "+f.Name()+" of "+f.node+" was reset while the exporter ran")
		}
	}
	if f.failures > 0 {
		f.failures--
		f.results[order] = v1alpha1.RemediationStateFailed
		return nil
	}
	f.results[order] = v1alpha1.RemediationStateReset
	f.cleared = f.remedy == "Reset" && f.boot == ""
	return nil
}

// countPreparedOn returns the number of claims that hold a GPU of a node.
func countPreparedOn(now *snapshot, node, name string) int32 {
	var n int32
	for _, claim := range now.claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Pool == node+"-"+v1alpha1.DriverName && r.Device == name {
				n++
			}
		}
	}
	return n
}

// act has GPUs that are not well brought back.
func act(s *v1alpha1.ClusterPolicySpec) { s.Remediation.Mode = v1alpha1.RemediationAct }

// remedyOf returns the installer's remediation of a GPU; zero: none.
func (w *world) remedyOf(fault *gpuFault) v1alpha1.RemediationStatus {
	w.Helper()
	for _, status := range w.gpunode(fault.node).Status.Remediations {
		if status.GPU == fault.Name() {
			return status
		}
	}
	return v1alpha1.RemediationStatus{}
}

// untilStep waits until the installer's remediation of a GPU has one of the steps, and has a reason for it where
// one is given.
func (w *world) untilStep(fault *gpuFault, step v1alpha1.RemediationStep, reason string) v1alpha1.RemediationStatus {
	w.Helper()
	var status v1alpha1.RemediationStatus
	w.until(fmt.Sprintf("%s of %s comes to %s", fault.Name(), fault.node, step), func() string {
		if status = w.remedyOf(fault); status.Step != step || reason != "" && status.Reason != reason {
			return fmt.Sprintf("it is %s (%s: %s)", status.Step, status.Reason, status.Message)
		}
		return ""
	})
	return status
}

// untilEnded waits until remediations of a node are over, and returns how.
func (w *world) untilEnded(node string, records int) []v1alpha1.RemediationRecord {
	w.Helper()
	var history []v1alpha1.RemediationRecord
	w.until("remediations of "+node+" are over", func() string {
		g := w.gpunode(node)
		if history = g.Status.History; len(history) < records || len(g.Spec.Remediations) > 0 {
			return fmt.Sprintf("remedies %+v, status %+v, history %+v", g.Spec.Remediations, g.Status.Remediations, history)
		}
		return ""
	})
	if len(history) != records {
		w.Errorf("the history has %d records, want %d: %+v", len(history), records, history)
	}
	return history
}

// reasonsOn are the reasons of events about remediations of a kind of object, in order, without those of earlier tests at the same API server.
func (w *world) reasonsOn(kind string) string {
	w.Helper()
	list := &corev1.EventList{}
	w.must(w.admin.List(w.Context(), list))
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var reasons []string
	for _, e := range list.Items {
		if e.Action == "Remediate" && e.InvolvedObject.Kind == kind && e.EventTime.After(w.started) {
			reasons = append(reasons, e.Reason)
		}
	}
	return strings.Join(reasons, " ")
}

// nothingWrong checks what agents noticed.
func (w *world) nothingWrong() {
	w.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, wrong := range w.violations {
		w.Error(wrong)
	}
}
