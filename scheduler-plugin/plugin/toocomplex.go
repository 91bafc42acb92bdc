package plugin

import (
	"fmt"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// fitLimit is how long the searches of fit may take in an attempt, on all nodes; cycleSteps is the same in steps.
const (
	fitLimit   = 50 * time.Millisecond
	cycleSteps = int(fitLimit / fit.StepTime)
)

// reasonTooComplex is the reason of a node without a result.
const reasonTooComplex = fit.ReasonTooComplex + ": the search for devices exceeds its limit"

// rejectTooComplex returns the status of a pod for which no node was found before a limit was exceeded.
func (p *Plugin) rejectTooComplex(c *cycle) *fwk.Status {
	p.metrics.tooComplex.Inc()
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(
		"%s: %v%s. Use fewer requests, alternatives, selectors or constraints in the claims of the pod; it is retried with backoff",
		fit.ReasonTooComplex, fit.ErrTooComplex, c.unevaluated()))
}

// unevaluated returns on how many nodes there is no result.
func (c *cycle) unevaluated() string {
	if c.order == nil {
		return " on every node"
	}
	tooComplex, pending := c.order.Unevaluated()
	return fmt.Sprintf(" on %d nodes; %d nodes are not evaluated yet", tooComplex, pending)
}
