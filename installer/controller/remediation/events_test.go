package remediation

import (
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestStepEventIsRecordedWhenTheStepBegins checks that the Event of a step names the GPU and the message, that it is on the GPUNode and the Node, and that
// it is repeated only for another attempt.
func TestStepEventIsRecordedWhenTheStepBegins(t *testing.T) {
	gpu := controllertest.GPU(t, "n", 0).Name()
	in := func(step v1alpha1.RemediationStep) v1alpha1.RemediationStatus {
		return v1alpha1.RemediationStatus{GPU: gpu, Step: step, ID: "one", Message: "the message"}
	}
	hold, started := in(v1alpha1.RemediationStepHold), "Normal RemediationStarted"
	before, another := hold, hold
	before.ID, another.GPU = "zero", "another"
	for name, test := range map[string]struct {
		old    []v1alpha1.RemediationStatus
		now    v1alpha1.RemediationStatus
		noNode bool
		// want are type and reason of the Events, of which there are count.
		want  string
		count int
	}{
		"a new remediation":       {nil, hold, false, started, 2},
		"without a Node":          {nil, hold, true, started, 1},
		"the same step":           {[]v1alpha1.RemediationStatus{hold}, hold, false, "", 0},
		"another attempt":         {[]v1alpha1.RemediationStatus{before}, hold, false, started, 2},
		"the step of another GPU": {[]v1alpha1.RemediationStatus{another}, hold, false, started, 2},
		"a step without an Event": {[]v1alpha1.RemediationStatus{hold}, in(v1alpha1.RemediationStepDrain), false, "", 0},
		"a reset after the drain": {[]v1alpha1.RemediationStatus{in(v1alpha1.RemediationStepDrain)}, in(v1alpha1.RemediationStepReset), false, "Normal GPUDrained", 2},
		"a request to replace":    {[]v1alpha1.RemediationStatus{hold}, in(v1alpha1.RemediationStepReplace), false, "Warning ReplacementRequired", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n")})
			if test.noNode {
				if err := c.Delete(t.Context(), c.Node("n")); err != nil {
					t.Fatal(err)
				}
			}
			n, err := decideNode(t, newRemediator(t, c), controllertest.Policies{}.Catalog(), "n")
			if err != nil {
				t.Fatal(err)
			}
			n.gpus = []gpuRemediation{{Observed: remediation.Observed{GPU: gpu}, decision: remediation.Decision{Status: &test.now}}}
			n.RecordStepEvents(test.old)
			events := c.DrainEvents()
			if len(events) != test.count || slices.ContainsFunc(events, func(e string) bool { return e != test.want+" "+gpu+": the message" }) {
				t.Errorf("got Events %q, want %d with %q", events, test.count, test.want)
			}
		})
	}
}

// TestEndOfARemediationIsReportedOnce checks the Event of each outcome, and that the Event is not repeated when the order could not be removed after the
// record was written.
func TestEndOfARemediationIsReportedOnce(t *testing.T) {
	gpu := controllertest.GPU(t, "n", 0).Name()
	for outcome, want := range map[v1alpha1.RemediationOutcome]string{
		v1alpha1.OutcomeRecovered: "Normal GPURecovered", v1alpha1.OutcomeFailed: "Warning RemediationFailed", v1alpha1.OutcomeStopped: "Normal RemediationStopped",
	} {
		t.Run(string(outcome), func(t *testing.T) {
			gpunode := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepRestore, "r", 0)
			c := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{gpunode})
			failing := true
			failRequests(c, func(verb string, object any, _ string) bool {
				_, is := object.(*v1alpha1.GPUNode)
				return failing && is && verb == "patch"
			})
			r, cat := newRemediator(t, c), controllertest.Policies{}.Catalog()
			for ; ; failing = false {
				node, _, err := nodestate.Read(t.Context(), r.Cluster, cat, c.GPUNode("n"))
				if err != nil {
					t.Fatal(err)
				}
				record := &v1alpha1.RemediationRecord{ID: "one", GPU: gpu, Outcome: outcome, Message: "the message"}
				g := gpuRemediation{Observed: remediation.Observed{GPU: gpu}, decision: remediation.Decision{Action: remediation.Release, Record: record}}
				n := &NodeRemediation{Remediator: r, catalog: cat, node: node, gpus: []gpuRemediation{g}}
				_, err = n.RemediateNodeGPUs(t.Context())
				events := c.DrainEvents()
				if !failing {
					if err != nil || len(events) > 0 || len(c.GPUNode("n").Spec.Remediations) > 0 {
						t.Errorf("repeated: error %v, Events %q, orders %+v", err, events, c.GPUNode("n").Spec.Remediations)
					}
					break
				}
				if err == nil || !strings.Contains(err.Error(), "write spec of GPUNode n: "+errInjected.Error()) {
					t.Errorf("got error %v", err)
				}
				if len(events) != 2 || slices.ContainsFunc(events, func(e string) bool { return e != want+" "+gpu+": the message" }) {
					t.Errorf("got Events %q, want 2 with %q", events, want)
				}
			}
			if history := c.GPUNode("n").Status.History; len(history) != 1 {
				t.Errorf("the history is %+v, want one record", history)
			}
		})
	}
}
