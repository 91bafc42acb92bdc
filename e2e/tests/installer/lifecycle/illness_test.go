package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// illness is what a GPU suffers from, and what its node's agent has done about it.
type illness struct {
	node string
	gpu.GPU
	xid    int32
	remedy string
	// failures is how many resets fail before one helps, boot the boot that has it when another one ends it.
	failures int
	boot     string
	over     bool
	since    metav1.Time
	// answers are how resets ended, by the order's ID.
	answers map[string]v1alpha1.RemedyState
}

// machineNode is a node with two GPUs.
func (w *world) machineNode(name string) gpu.Node {
	w.Helper()
	found, err := gputest.FindMachine("h100x2")
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

// sicken gives a GPU a fatal XID that a reset ends, changed.
func (w *world) sicken(node string, index int, changes ...func(*illness)) *illness {
	w.Helper()
	ill := &illness{
		node: node, GPU: w.machineNode(node).GPUs[index], xid: 95, remedy: "Reset", since: metav1.Now().Rfc3339Copy(),
		answers: map[string]v1alpha1.RemedyState{},
	}
	for _, change := range changes {
		change(ill)
	}
	w.change(func(p *players) { p.ills = append(p.ills, ill) })
	return ill
}

// holder makes a pod of a user that holds a whole GPU.
func (w *world) holder(name, node string, index int) *corev1.Pod {
	w.Helper()
	device := w.machineNode(node).GPUs[index].Name()
	return w.user(name, node, func(pod *corev1.Pod) { pod.Annotations = map[string]string{annotationDevice: device} })
}

// noticeOrders remembers how many GPUs are out of service at a time.
func (p *players) noticeOrders(node *v1alpha1.GPUNode) {
	p.orders[node.Name] = len(node.Spec.Remedies)
	sum := 0
	for _, n := range p.orders {
		sum += n
	}
	p.out = max(p.out, sum)
}

// health is what an agent says of the health of its GPUs. It resets one when it is told to, nothing is prepared on it and nobody watches it.
func (p *players) health(
	ctx context.Context, s *scene, g *v1alpha1.GPUNode, m machine,
) (faults []v1alpha1.GPUFault, remedies []v1alpha1.AgentRemedy, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, order := range g.Spec.Remedies {
		said := v1alpha1.AgentRemedy{ID: order.ID, State: v1alpha1.RemedyHolding, Prepared: preparedOn(s, g.Name, order.GPU)}
		at := slices.IndexFunc(p.ills, func(i *illness) bool { return i.node == g.Name && i.Name() == order.GPU })
		if at >= 0 {
			ill := p.ills[at]
			if order.Step == v1alpha1.OrderReset && said.Prepared == 0 && ill.answers[order.ID] == "" {
				if err := p.reset(ctx, s, ill, order.ID); err != nil {
					return nil, nil, err
				}
			}
			if answer := ill.answers[order.ID]; answer != "" && order.Step != v1alpha1.OrderHold {
				said.State = answer
			}
		}
		remedies = append(remedies, said)
	}
	for _, ill := range p.ills {
		if ill.over = ill.over || ill.boot != "" && ill.boot != m.bootID(); ill.over || ill.node != g.Name {
			continue
		}
		faults = append(faults, v1alpha1.GPUFault{
			GPU: ill.Name(), UUID: ill.UUID, Signal: "xid", XID: ill.xid, Severity: "Fatal", Remedy: ill.remedy, Message: "it is not well", Since: ill.since,
			BootID: m.bootID(),
		})
	}
	return faults, remedies, nil
}

// reset resets a GPU.
func (p *players) reset(ctx context.Context, s *scene, ill *illness, id string) error {
	if watcher := find(s, ill.node, "tessera-dcgm-exporter"); watcher != nil {
		now, err := p.live(ctx, client.ObjectKeyFromObject(watcher), watcher.UID)
		if err != nil {
			return err
		}
		if now != nil && now.DeletionTimestamp == nil {
			p.wrong = append(p.wrong, "a GPU of "+ill.node+" was to be reset while it was watched")
		}
	}
	if ill.failures > 0 {
		ill.failures--
		ill.answers[id] = v1alpha1.RemedyFailed
		return nil
	}
	ill.answers[id] = v1alpha1.RemedyReset
	ill.over = ill.remedy == "Reset" && ill.boot == ""
	return nil
}

// preparedOn is how many claims have a GPU of a node.
func preparedOn(s *scene, node, name string) int32 {
	var n int32
	for _, claim := range s.claims.Items {
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

// remedyOf is where the installer stands with a GPU; zero: nowhere.
func (w *world) remedyOf(ill *illness) v1alpha1.RemedyStatus {
	w.Helper()
	for _, status := range w.gpunode(ill.node).Status.Remedies {
		if status.GPU == ill.Name() {
			return status
		}
	}
	return v1alpha1.RemedyStatus{}
}

// untilStep waits until the installer stands somewhere with a GPU, and has a reason for it where one is given.
func (w *world) untilStep(ill *illness, step v1alpha1.RemedyStep, reason string) v1alpha1.RemedyStatus {
	w.Helper()
	var status v1alpha1.RemedyStatus
	w.until(fmt.Sprintf("%s of %s comes to %s", ill.Name(), ill.node, step), func() string {
		if status = w.remedyOf(ill); status.Step != step || reason != "" && status.Reason != reason {
			return fmt.Sprintf("it is %s (%s: %s)", status.Step, status.Reason, status.Message)
		}
		return ""
	})
	return status
}

// untilEnded waits until remediations of a node are over, and returns how.
func (w *world) untilEnded(node string, records int) []v1alpha1.RemedyRecord {
	w.Helper()
	var history []v1alpha1.RemedyRecord
	w.until("remediations of "+node+" are over", func() string {
		g := w.gpunode(node)
		if history = g.Status.History; len(history) < records || len(g.Spec.Remedies) > 0 {
			return fmt.Sprintf("remedies %+v, status %+v, history %+v", g.Spec.Remedies, g.Status.Remedies, history)
		}
		return ""
	})
	if len(history) != records {
		w.Errorf("the history has %d records, want %d: %+v", len(history), records, history)
	}
	return history
}

// said are the reasons of events about remediations of a kind of object, in order.
func (w *world) said(kind string) string {
	w.Helper()
	list := &corev1.EventList{}
	w.must(w.admin.List(w.Context(), list))
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var reasons []string
	for _, e := range list.Items {
		if e.Action == "Remedy" && e.InvolvedObject.Kind == kind && e.EventTime.After(w.began.Add(-time.Second)) {
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
	for _, wrong := range w.wrong {
		w.Error(wrong)
	}
}
