package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// A GPU with a pod that nobody evicts is not taken out, and the pods beside it keep running: people read which one it is.
func TestPodThatStaysKeepsTheGPU(t *testing.T) {
	device := wire.DeviceName(gpu.Device{GPU: gpuOf(t, "n", 0).Name(), Use: gpu.Use{Shape: gpu.Whole}})
	bare := user("bare", "n", device)
	bare[0].SetOwnerReferences(nil)
	for _, force := range []bool{false, true} {
		spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
		spec.Remediation.Drain.Force = force
		h := newHospital(t, spec, []*v1alpha1.GPUNode{sickNode("n", xid(t, "n", 0, 95, "Reset"))}, slices.Concat(user("job", "n", device), bare)...)
		node := h.step("n")
		if force {
			if len(node.Spec.Remedies) != 1 {
				t.Errorf("with force: orders %+v, %+v", node.Spec.Remedies, node.Status.Remedies)
			}
			continue
		}
		if len(node.Spec.Remedies) > 0 || len(node.Status.Remedies) != 1 {
			t.Fatalf("orders %+v, %+v", node.Spec.Remedies, node.Status.Remedies)
		}
		if s := node.Status.Remedies[0]; s.Step != v1alpha1.RemedyWaiting || s.Reason != remediation.ReasonDrainBlocked || !strings.Contains(s.Message, "users/bare (") ||
			strings.Contains(s.Message, "users/job") {
			t.Errorf("it stands at %+v", s)
		}
	}
}

// The pod that a claim was reserved for is gone, and one of the same name runs elsewhere, as a StatefulSet makes it: that one holds nothing here.
func TestAnotherPodOfTheSameNameHoldsNothing(t *testing.T) {
	device := wire.DeviceName(gpu.Device{GPU: gpuOf(t, "n", 0).Name(), Use: gpu.Use{Shape: gpu.Whole}})
	node := sickNode("n", xid(t, "n", 0, 95, "Reset"))
	node.Spec.Remedies = []v1alpha1.Remedy{{GPU: gpuOf(t, "n", 0).Name(), ID: "i"}}
	for uid, want := range map[types.UID]int{"uid-of-web-0": 1, "another": 0} {
		web := user("web-0", "n", device)
		web[0].SetUID(uid)
		h := newHospital(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{node.DeepCopy()}, web...)
		s, err := h.r.observe(t.Context(), policies{}.catalog(), node)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.r.examine(t.Context(), policies{}.catalog(), s, phase.Decision{}); err != nil {
			t.Fatal(err)
		}
		if p := s.patients[0]; len(p.victims) != want || len(p.Drain.Holders) != want {
			t.Errorf("with UID %s: victims %+v, holders %q, want %d", uid, p.victims, p.Drain.Holders, want)
		}
	}
}

// Only the word "false" takes a pause back: an annotation without a value is one, too.
func TestPauseByItsPresence(t *testing.T) {
	cat := policies{}.catalog()
	for value, want := range map[string]bool{"": true, "true": true, "yes": true, "false": false} {
		node := sickNode("n")
		node.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: value}
		if got := cat.paused(node) != ""; got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
	if where := cat.paused(sickNode("n")); where != "" {
		t.Errorf("without one: %q", where)
	}
}

// On a node that is refused nothing can be reset, so nobody is evicted; one whose pods do not leave for an upgrade is worked on.
func TestRefusedNodeIsBusy(t *testing.T) {
	s := &nodeObservation{Observed: phase.Observed{Node: phase.Node{Exists: true, Ready: true}, Wanted: phase.Wanted{Managed: true}}}
	for reason, want := range map[string]bool{
		phase.ReasonDevicePluginPresent: true, phase.ReasonConflict: true, phase.ReasonNoDriver: true, phase.ReasonHostDriverRefused: true,
		phase.ReasonDrainBlocked: false, phase.ReasonClaimsPrepared: false,
	} {
		said := s.busyReason(phase.Decision{Phase: v1alpha1.PhaseBlocked, Reason: reason})
		if want != strings.Contains(said, reason) || (said != "") != want {
			t.Errorf("%s: %q, want busy %t", reason, said, want)
		}
	}
}

// A sick GPU that cannot be looked at keeps neither its node from being described nor another sick GPU of the cluster from being taken out.
func TestGPUThatCannotBeSeenStopsNothingElse(t *testing.T) {
	act := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct}}
	device := wire.DeviceName(gpu.Device{GPU: gpuOf(t, "n1", 0).Name(), Use: gpu.Use{Shape: gpu.Whole}})
	h := newHospital(t, act, []*v1alpha1.GPUNode{sickNode("n1", xid(t, "n1", 0, 95, "Reset")), sickNode("n2", xid(t, "n2", 0, 95, "Reset"))}, user("job", "n1", device)...)
	h.r.Live = interceptor.NewClient(h, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	})
	if _, err := h.r.Reconcile(t.Context(), Request("n1")); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("of a GPU that cannot be seen it says %v", err)
	}
	node := &corev1.Node{}
	if err := h.Get(t.Context(), client.ObjectKey{Name: "n1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Labels[v1alpha1.LabelPresent] != "true" {
		t.Errorf("its node has labels %v", node.Labels)
	}
	if n2 := h.step("n2"); len(n2.Spec.Remedies) != 1 {
		t.Errorf("of the other node: %+v", n2.Status.Remedies)
	}
}
