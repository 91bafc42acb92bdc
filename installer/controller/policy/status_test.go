package policy

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestFaultyGPUsAreCounted checks that a ClusterPolicy counts each unhealthy GPU of its nodes once, by its worst fault, and the held GPUs, from the
// agents' reports of the present boot.
func TestFaultyGPUsAreCounted(t *testing.T) {
	critical := controllertest.XIDFault(t, "n", 1, 48, "Reset")
	critical.Severity = "Critical"
	warning := controllertest.XIDFault(t, "n", 1, 48, "Wait")
	warning.Severity = "Warning"
	faulted := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)
	faulted.Status.Agent.Faults = append(faulted.Status.Agent.Faults, controllertest.XIDFault(t, "n", 0, 48, "Reset"), critical)
	old, away, light := controllertest.FaultyNode("old", controllertest.XIDFault(t, "n", 0, 95, "Reset")), controllertest.FaultyNode("away", controllertest.XIDFault(t, "n", 0, 95, "Reset")), controllertest.FaultyNode("light", warning)
	old.Status.Agent.BootID = "before"
	p := &pass{}
	for _, node := range []*v1alpha1.GPUNode{faulted, old, away, light} {
		p.members = append(p.members, member{gpunode: node, node: controllertest.ServingNode(node.Name), assignment: catalog.Assignment{Chosen: true, OptedOut: node == away}})
	}
	if got, want := p.countFaultyGPUs(), (v1alpha1.GPUCounts{Unhealthy: 2, Fatal: 1, Held: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
