package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// lost brings back what a GPUNode forgot that was deleted, or restored without its status: the driver that runs stays, and nobody is evicted.
var lost = []rule{
	{"adopt driver", (*view).forgot, func(v *view) Decision {
		driver := v.placed()
		if driver == nil {
			return v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonWaitingForRollout,
				"the driver of the node is unknown: the rollout has not granted one yet")
		}
		d := v.in(v1alpha1.PhasePreflight, v1alpha1.StepOperate, ReasonDriverAdopted, "the GPUNode is new and the node is not: the driver that it has stays").do(Adopt)
		d.Driver, d.Good = driver, v.Node.Labels.Ready || v.resets()
		return d
	}},
}

// forgot reports whether the GPUNode does not know the driver that was placed on its node. The label by which a node is in service is there only
// after what runs was recorded as good: where the record is missing the status was lost, and the spec may be an old one.
func (v *view) forgot() bool {
	if !v.Wanted.Managed || !v.Wanted.Driver || v.Wanted.Sandbox || v.Node.Labels.Driver == "" {
		return false
	}
	return v.Spec.Driver == nil || v.Status.LastGoodDriver == nil && (v.Node.Labels.Ready || v.resets()) && v.placed() != nil
}

// placed returns the driver that the node's label stands for, as far as it is known.
func (v *view) placed() *v1alpha1.DesiredDriver {
	if v.Placed != nil {
		return v.Placed
	}
	return v.installed()
}
