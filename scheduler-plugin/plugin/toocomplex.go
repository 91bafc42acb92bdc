package plugin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// What an attempt may take at most on all nodes: the searches of fit, the in-tree allocator in Filter, and in Reserve. They
// are the sum of what one pod can occupy the scheduler.
const (
	fitLimit        = 50 * time.Millisecond
	delegationLimit = 150 * time.Millisecond
	reserveLimit    = 50 * time.Millisecond
	attemptLimit    = fitLimit + delegationLimit + reserveLimit
)

// What every attempt may take, however much time other pods have taken (requeue.Throttle). Attempts that take no more are not
// charged.
const (
	minimumFit        = 2 * time.Millisecond
	minimumDelegation = 5 * time.Millisecond
)

// reasonTooComplex is the reason of a node without a result.
const reasonTooComplex = fit.ReasonTooComplex + ": the search for devices exceeds its limit"

// tooComplexVerdict returns the verdict on a node that has no result, because a limit was exceeded.
func (c *cycle) tooComplexVerdict() *nodeVerdict {
	c.tooComplex.Store(true)
	return &nodeVerdict{status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonTooComplex)}
}

// newBudget returns the budget for the searches of an attempt that may take the part of the limit.
func newBudget(part float64) *fit.Budget {
	return fit.NewBudget(int(max(minimumFit, partOf(fitLimit, part)) / fit.StepTime))
}

// isLarge reports whether the claims need more than the minimum for sure.
func (p *Plugin) isLarge(claims []*resourceapi.ResourceClaim) bool {
	return time.Duration(p.shared.reader.LeastSteps(claims))*fit.StepTime > minimumFit
}

func partOf(limit time.Duration, part float64) time.Duration {
	return time.Duration(part * float64(limit))
}

// charge charges the throttle with what the attempt has taken since the last call, beyond the minimum.
func (p *Plugin) charge(c *cycle) {
	took := time.Duration(c.budget.Spent()) * fit.StepTime
	over := max(0, took-minimumFit) + max(0, c.delegation.took()-minimumDelegation)
	p.shared.throttle.Charge(over - c.charged)
	c.charged = over
}

// rejectTooComplex returns the status of a pod for which no node was found before a limit was exceeded. The pod is retried
// after the backoff of its claims.
func (p *Plugin) rejectTooComplex(c *cycle) *fwk.Status {
	p.metrics.tooComplex.WithLabelValues(exceededNow).Inc()
	tooComplex, pending := int(c.exceeded.Load()), int(c.skipped.Load())
	where, progress := "while their selectors were compiled", true
	if c.order != nil {
		over, unevaluated := c.order.Unevaluated()
		tooComplex, pending = tooComplex+over, pending+unevaluated
	}
	if c.narrowed {
		p.hints.Set(c.pod.UID, requeue.AllNodes)
	}
	p.sweeps.keep(c.pod.UID, c.sweep)
	if tooComplex+pending > 0 {
		where, progress = fmt.Sprintf("on %d nodes; %d nodes are not evaluated yet", tooComplex, pending), pending > 0
	}
	if !progress {
		p.sweeps.end(c.pod.UID)
	}
	p.timers.Set(c.pod, p.shared.throttle.Reject(c.digest(), progress))
	return statusTooComplex(fmt.Sprintf("%v %s", fit.ErrTooComplex, where))
}

// rejectUntil returns the status of a pod that must wait until its claims are tried, or tried again, and retries it after the
// time.
func (p *Plugin) rejectUntil(pod *corev1.Pod, wait time.Duration) *fwk.Status {
	p.metrics.tooComplex.WithLabelValues(exceededBefore).Inc()
	p.timers.Set(pod, wait)
	return statusTooComplex("pods with so many combinations of requests, alternatives, selectors and constraints are tried one after the other")
}

func statusTooComplex(why string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(
		"%s: %s. Use fewer requests, alternatives, selectors or constraints in the claims of the pod; it is retried with backoff",
		fit.ReasonTooComplex, why))
}

// digestOf returns a digest of what the pending claims and the extended resources of the pod require.
func (p *Plugin) digestOf(pod *corev1.Pod, pending []*resourceapi.ResourceClaim, resources []corev1.ResourceName) string {
	var specs []resourceapi.ResourceClaimSpec
	for _, claim := range pending {
		specs = append(specs, claim.Spec)
	}
	if len(resources) > 0 {
		if claim, err := p.shared.extended.ClaimFor(pod, resources); err == nil {
			specs = append(specs, claim.Spec)
		}
	}
	content, err := json.Marshal(specs)
	if err != nil {
		content = []byte(pod.UID)
	}
	sum := sha256.Sum256(content)
	return string(sum[:])
}
