package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// lost restores the fields of a GPUNode that was deleted or restored without its status: the running driver stays and no pod is evicted.
var lost = []rule{
	{"adopt driver", (*view).statusLost, func(v *view) Decision {
		driver := v.placed()
		if driver == nil {
			return v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonWaitingForRollout,
				"the installed driver is unknown; waiting for the rollout to grant a driver")
		}
		d := v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonDriverAdopted, "the GPUNode was recreated; the driver installed on the node is kept").do(Adopt)
		d.Driver, d.Good = driver, v.Node.Labels.Ready || v.resets()
		return d
	}},
}

// statusLost reports whether the GPUNode lacks the driver that was placed on its node. The ready label is set only after the running driver was recorded
// as good; if the record is missing, the status was lost and the spec may be outdated.
func (v *view) statusLost() bool {
	if !v.Wanted.Managed || !v.Wanted.Driver || v.Wanted.Sandbox || v.Node.Labels.Driver == "" {
		return false
	}
	return v.Spec.Driver == nil || v.Status.LastGoodDriver == nil && (v.Node.Labels.Ready || v.resets()) && v.placed() != nil
}

// placed returns the driver that the node's label identifies, or nil if it is unknown.
func (v *view) placed() *v1alpha1.DesiredDriver {
	if v.Placed != nil {
		return v.Placed
	}
	return v.installed()
}
