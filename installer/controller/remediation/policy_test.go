package remediation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/remediation"
)

// TestPauseByItsPresence checks that only the value "false" ends a pause; an annotation without a value pauses.
func TestPauseByItsPresence(t *testing.T) {
	cat := controllertest.Policies{}.Catalog()
	for value, want := range map[string]bool{"": true, "true": true, "yes": true, "false": false} {
		node := controllertest.FaultyNode("n")
		node.Annotations = map[string]string{v1alpha1.AnnotationPauseRemediation: value}
		if got := pausedBy(cat, node) != ""; got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
	if where := pausedBy(cat, controllertest.FaultyNode("n")); where != "" {
		t.Errorf("without one: %q", where)
	}
}

// TestRefusedNodeIsBusy checks that no pod is evicted on a Blocked node where no reset is possible; a node whose drain is blocked is remediated.
func TestRefusedNodeIsBusy(t *testing.T) {
	s := &nodestate.Observation{Observed: phase.Observed{Node: phase.Node{Exists: true, Ready: true}, Wanted: phase.Wanted{Managed: true}}}
	for reason, want := range map[string]bool{
		phase.ReasonDevicePluginPresent: true, phase.ReasonKubeletTooOld: true, phase.ReasonConflict: true, phase.ReasonNoDriver: true, phase.ReasonHostDriverRefused: true,
		phase.ReasonDrainBlocked: false, phase.ReasonClaimsPrepared: false,
	} {
		message := busyReason(s, phase.Decision{Phase: v1alpha1.PhaseBlocked, Reason: reason})
		if want != strings.Contains(message, reason) || (message != "") != want {
			t.Errorf("%s: %q, want busy %t", reason, message, want)
		}
	}
}

// TestBusyNodeIsNamed checks that the reason why no remediation begins names the other operation or the state of the node, and that a node in service, in
// validation or whose validation failed is not busy.
func TestBusyNodeIsNamed(t *testing.T) {
	serving := func(change func(*nodestate.Observation)) *nodestate.Observation {
		s := &nodestate.Observation{Observed: phase.Observed{Node: phase.Node{Exists: true, Ready: true}, Wanted: phase.Wanted{Managed: true}}}
		change(s)
		return s
	}
	unchanged := func(*nodestate.Observation) {}
	for name, test := range map[string]struct {
		change func(*nodestate.Observation)
		phase  v1alpha1.NodePhase
		want   string
	}{
		"no Node":   {func(s *nodestate.Observation) { s.Node.Exists = false }, v1alpha1.PhaseReady, "the Node does not exist"},
		"not Ready": {func(s *nodestate.Observation) { s.Node.Ready = false }, v1alpha1.PhaseReady, "the node is not Ready"},
		"maintenance": {func(s *nodestate.Observation) {
			s.Spec.Maintenance = &v1alpha1.Maintenance{Operation: v1alpha1.OperationMIGMode}
		}, v1alpha1.PhaseReady, "the node is in maintenance (" + string(v1alpha1.OperationMIGMode) + ")"},
		"tainted":           {func(s *nodestate.Observation) { s.Tainted = true }, v1alpha1.PhaseReady, "the node is in maintenance"},
		"maintenance label": {func(s *nodestate.Observation) { s.Node.Labels.Maintenance = "x" }, v1alpha1.PhaseReady, "the node is in maintenance"},
		"upgrade":           {unchanged, v1alpha1.PhaseUpgrading, "the node is in maintenance"},
		"not selected":      {func(s *nodestate.Observation) { s.Wanted.Managed = false }, v1alpha1.PhaseReady, "no ClusterPolicy selects the node"},
		"operands removed":  {unchanged, v1alpha1.PhaseAbsent, "no ClusterPolicy selects the node"},
		"driver":            {unchanged, v1alpha1.PhaseDriverInstalling, "the node is DriverInstalling"},
		"agent":             {unchanged, v1alpha1.PhaseAgentReady, "the node is AgentReady"},
		"in service":        {unchanged, v1alpha1.PhaseReady, ""},
		"validation":        {unchanged, v1alpha1.PhaseValidating, ""},
		"validation failed": {unchanged, v1alpha1.PhaseFailed, ""},
	} {
		if got := busyReason(serving(test.change), phase.Decision{Phase: test.phase}); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestPauseNamesItsObject checks that a paused GPU stays in service, and that its message names the object with the annotation.
func TestPauseNamesItsObject(t *testing.T) {
	paused := map[string]string{v1alpha1.AnnotationPauseRemediation: "true"}
	for want, test := range map[string]struct{ node, policy map[string]string }{
		"GPUNode n": {paused, nil}, "ClusterPolicy " + v1alpha1.ClusterPolicyName: {nil, paused},
	} {
		node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
		node.Annotations = test.node
		c, cat := controllertest.NewCluster(t, actPolicy(1), []*v1alpha1.GPUNode{node}), controllertest.Policies{Spec: actPolicy(1)}.Catalog()
		cat.Policy.Annotations = test.policy
		list, err := reconcile(t, newRemediator(t, c), cat, "n")
		if err != nil || len(list) != 1 || list[0].Reason != remediation.ReasonPaused || !strings.HasSuffix(list[0].Message, ": "+want) {
			t.Errorf("%s: got %+v, error %v", want, list, err)
		}
		if got := c.GPUNode("n").Spec.Remediations; len(got) > 0 {
			t.Errorf("%s: out of service are %+v, want none", want, got)
		}
	}
}

// TestNodeThatIsNotSelectedReturnsItsGPUs checks that mode Act does not apply to a node that the ClusterPolicy does not select: no GPU is taken out of
// service, and one that was not reset returns.
func TestNodeThatIsNotSelectedReturnsItsGPUs(t *testing.T) {
	spec := actPolicy(2)
	spec.NodeSelector = controllertest.InPool("other")
	node := controllertest.NodeInRemediation(t, v1alpha1.RemediationStepDrain, remediation.ReasonDraining, 0)
	node.Status.Agent.Faults = append(node.Status.Agent.Faults, controllertest.XIDFault(t, "n", 1, 95, "Reset"))
	c := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{node})
	list, err := reconcile(t, newRemediator(t, c), controllertest.Policies{Spec: spec}.Catalog(), "n")
	if err != nil || len(list) != 1 || list[0].Step != v1alpha1.RemediationStepRestore || list[0].Reason != remediation.ReasonOff {
		t.Errorf("got %+v, error %v, want only the first GPU, released", list, err)
	}
	if got := c.GPUNode("n").Spec.Remediations; len(got) > 0 {
		t.Errorf("out of service are %+v, want none", got)
	}
}

// TestFieldsDecideAboutFaultyGPUs checks the effect of each field of remediation on a faulted GPU.
func TestFieldsDecideAboutFaultyGPUs(t *testing.T) {
	minute := &metav1.Duration{Duration: time.Minute}
	next := func(s v1alpha1.ClusterPolicySpec, fault string, change func(*remediation.Observed)) remediation.Decision {
		o := remediation.Observed{
			Now: time.Now(), GPU: "g", Policy: policyFor(controllertest.Policies{Spec: s}.Catalog(), &nodestate.Observation{Observed: phase.Observed{Wanted: phase.Wanted{Managed: true}}}),
			BootID: "b", AgentReports: true, Granted: true,
			Faults: []v1alpha1.GPUFault{{GPU: "g", Signal: "xid", XID: 95, Severity: "Fatal", Remedy: fault, BootID: "b", Since: metav1.Now()}},
		}
		change(&o)
		return remediation.Next(o)
	}
	failed := func(o *remediation.Observed) {
		o.Status = &v1alpha1.RemediationStatus{GPU: "g", ID: "i", Step: v1alpha1.RemediationStepReset, Attempts: 1, Faults: []string{"XID 95"}}
		o.Order = &v1alpha1.Remediation{GPU: "g", ID: "i", Step: v1alpha1.OrderReset}
		o.Agent = &v1alpha1.AgentRemediation{ID: "i", State: v1alpha1.RemediationStateFailed}
	}
	act := func(s *v1alpha1.ClusterPolicySpec) { s.Remediation.Mode = v1alpha1.RemediationAct }
	for _, f := range []struct {
		field  string
		change func(*v1alpha1.RemediationSpec)
		look   func(v1alpha1.ClusterPolicySpec) any
		want   any
	}{
		{"mode", func(r *v1alpha1.RemediationSpec) { r.Mode = v1alpha1.RemediationSuggest },
			func(s v1alpha1.ClusterPolicySpec) any { return next(s, "Reset", func(*remediation.Observed) {}).Action }, remediation.Wait},
		{"attempts", func(r *v1alpha1.RemediationSpec) { r.Attempts = new(int32(1)) },
			func(s v1alpha1.ClusterPolicySpec) any { return next(s, "Reset", failed).Status.Step }, v1alpha1.RemediationStepRebootRequested},
		{"reboot", func(r *v1alpha1.RemediationSpec) { r.Reboot = new(false) },
			func(s v1alpha1.ClusterPolicySpec) any {
				return next(s, "Reboot", func(*remediation.Observed) {}).Status.Step
			}, v1alpha1.RemediationStepReplace},
		{"drain.timeout", func(r *v1alpha1.RemediationSpec) { r.Drain.Timeout = minute }, func(s v1alpha1.ClusterPolicySpec) any {
			return next(s, "Reset", func(o *remediation.Observed) {
				o.Status = &v1alpha1.RemediationStatus{GPU: "g", ID: "i", Step: v1alpha1.RemediationStepDrain, Reason: remediation.ReasonDraining, Since: metav1.NewTime(o.Now.Add(-2 * time.Minute))}
				o.Order = &v1alpha1.Remediation{GPU: "g", ID: "i", Step: v1alpha1.OrderHold}
				o.Agent = &v1alpha1.AgentRemediation{ID: "i", State: v1alpha1.RemediationStateHolding, PreparedClaims: 1}
				o.Drain.Holders = []string{"a/b"}
			}).Action
		}, remediation.Release},
		{"drain.waitTimeout", func(r *v1alpha1.RemediationSpec) { r.Drain.WaitTimeout = minute }, func(s v1alpha1.ClusterPolicySpec) any {
			return next(s, "Reset", func(o *remediation.Observed) {
				o.Drain.Waited, o.Faults[0].Since = []string{"a/b"}, metav1.NewTime(o.Now.Add(-2*time.Minute))
			}).Action
		}, remediation.Direct},
	} {
		t.Run(f.field, func(t *testing.T) {
			var spec v1alpha1.ClusterPolicySpec
			act(&spec)
			if before := f.look(spec); before == f.want {
				t.Fatalf("it is %v before the change, too", before)
			}
			f.change(&spec.Remediation)
			if after := f.look(spec); after != f.want {
				t.Errorf("got %v, want %v", after, f.want)
			}
		})
	}
	t.Run("maxParallel", func(t *testing.T) {
		for n, want := range map[int32]int{1: 1, 2: 2} {
			spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationAct, MaxParallel: &n}}
			node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"), controllertest.XIDFault(t, "n", 1, 95, "Reset"))
			h, got := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{node.DeepCopy()}), 0
			for _, g := range decide(t, h, controllertest.Policies{Spec: spec}.Catalog(), node) {
				if g.decision.Action == remediation.Direct {
					got++
				}
			}
			if got != want {
				t.Errorf("with maxParallel %d, %d GPUs were taken out", n, got)
			}
		}
	})
}
