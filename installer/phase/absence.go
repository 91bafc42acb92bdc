package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// absence removes maintenance, taint and labels from a node on which no operand is wanted, after agent and driver have stopped.
var absence = []rule{
	{"leave an absent node", func(v *view) bool { return !v.Wanted.Managed && v.entered }, left(Leave)},
	{"untaint an absent node", func(v *view) bool { return !v.Wanted.Managed && v.Tainted }, left(Untaint)},
	{"unlabel an absent node", func(v *view) bool { return !v.Wanted.Managed && v.Node.Labels != Labels{} }, left(Place)},
	{"absent", func(v *view) bool { return !v.Wanted.Managed }, func(v *view) Decision {
		d := Decision{Phase: v1alpha1.PhaseAbsent, Reason: ReasonNotSelected, Message: "no policy selects the node, or its labels exclude it", Action: Wait}
		if v.Status.Hardware != nil && v.Status.Hardware.GPUs == 0 {
			d.Message = "the node has no NVIDIA GPU"
		}
		return d
	}},
}

// left returns a rule body that performs one action on a node whose operands have stopped.
func left(a Action) func(*view) Decision {
	return func(*view) Decision {
		return Decision{Phase: v1alpha1.PhaseAbsent, Reason: ReasonRemovingOperands, Message: "removing operands from the node", Action: a}
	}
}
