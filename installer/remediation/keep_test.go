package remediation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// TestUnprovenStaysHeld checks a GPU that was reset and failed its validation, and so has no fault that taints it. Whatever halts remediation, the
// GPU stays held, is validated afterwards, and no user claim gets it.
func TestUnprovenStaysHeld(t *testing.T) {
	for reason, stop := range map[string]func(o *Observed){
		ReasonPaused:   func(o *Observed) { o.Paused = "GPUNode n" },
		ReasonOff:      func(o *Observed) { o.Policy.Mode = v1alpha1.RemediationOff },
		ReasonNodeBusy: func(o *Observed) { o.Busy = "the node is not Ready" },
	} {
		for _, step := range []v1alpha1.RemediationStep{v1alpha1.RemediationStepValidate, v1alpha1.RemediationStepRebootRequested} {
			if step == v1alpha1.RemediationStepRebootRequested && reason == ReasonNodeBusy {
				continue // a pending reboot request persists through a maintenance
			}
			o := faulted()
			o.Faults = nil
			o.Order = &v1alpha1.Remediation{ID: "one", GPU: o.GPU, Step: v1alpha1.OrderValidate}
			o.Status = &v1alpha1.RemediationStatus{
				GPU: o.GPU, Step: step, Reason: ReasonValidationFailed, ID: "one", Attempts: 2, Since: metav1.NewTime(now.Add(-time.Second)), Faults: []string{"XID 95"},
			}
			if step == v1alpha1.RemediationStepValidate {
				o.Status.Reason, o.Validation = ReasonValidating, phase.Validation{State: phase.ValidationFailed, Message: "CUDA error"}
			}
			free := o
			stop(&o)
			d := Next(o)
			if d.Status == nil || d.Status.Step != v1alpha1.RemediationStepWaiting || d.Status.Reason != reason || d.Action != Direct || d.Order.ID != "one" || d.Order.Step != v1alpha1.OrderHold {
				t.Fatalf("%s at %s: %s %+v", reason, step, d.Action, d.Status)
			}
			o.Status, o.Order, o.Validation = d.Status, &d.Order, phase.Validation{}
			if d := Next(o); d.Action != Wait || d.Status.Step != v1alpha1.RemediationStepWaiting || d.Status.Message != o.Status.Message {
				t.Errorf("%s at %s: later %s %+v", reason, step, d.Action, d.Status)
			}
			free.Status, free.Order, free.Validation = o.Status, o.Order, phase.Validation{}
			if d := Next(free); d.Action != Direct || d.Order.Step != v1alpha1.OrderValidate {
				t.Errorf("%s at %s: when it is over %s %+v", reason, step, d.Action, d.Status)
			}
		}
	}
}
