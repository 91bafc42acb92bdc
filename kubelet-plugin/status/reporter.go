package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Config is what a Reporter needs; everything but Rules is required.
type Config struct {
	// Driver, Node and Pool identify the devices that are reported.
	Driver, Node, Pool string
	Client             kubernetes.Interface
	// Health returns the faults of the GPUs, whose texts follow Rules. Records are the claims that were prepared in this boot.
	Health  Health
	Rules   gpu.Rules
	Records Records
	BootID  string
	// Registry is where the metrics of this package are registered.
	Registry prometheus.Registerer
}

// Reporter writes status.devices of claims and Events. Its methods but Run are safe for concurrent use,
// return at once and may be called before Run.
type Reporter struct {
	Config
	owner   owner
	metrics metrics

	mutex sync.Mutex
	// updates are the pending updates, by the claim's UID; at most maxPending.
	updates map[string]*statusUpdate
	// confirmed are the digests of what was written, by the UID of the prepared claim; at most maxPending.
	confirmed map[string]digest
	// queue contains the UIDs of updates while Run runs.
	queue workqueue.TypedRateLimitingInterface[string]
}

// New returns a reporter. It queues updates from now on and writes them in Run.
func New(c Config) *Reporter {
	r := &Reporter{
		Config: c, owner: owner{driver: c.Driver, pool: c.Pool},
		updates: map[string]*statusUpdate{}, confirmed: map[string]digest{},
	}
	r.metrics = newMetrics(c.Registry, r.Depth)
	return r
}

// Run writes until ctx ends. Updates that are not written by then are reported again by the next agent.
func (r *Reporter) Run(ctx context.Context) error {
	events, end := r.newEventWriter(ctx)
	defer end()
	queue := r.openQueue()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { r.work(ctx, queue, events) })
	}
	<-ctx.Done()
	queue.ShutDown()
	group.Wait()
	return nil
}

// Prepared reports that the claim is prepared.
func (r *Reporter) Prepared(claim prepare.Ref, answers []prepare.Answer) {
	r.enqueue(claim, &statusUpdate{claim: claim, desired: preparedState(answers), digest: digestOf(answers)})
}

// Reconciled is Prepared for claims that are reported repeatedly: it does nothing if the same was written already.
func (r *Reporter) Reconciled(claim prepare.Ref, answers []prepare.Answer) {
	r.mutex.Lock()
	known := r.confirmed[claim.UID] == digestOf(answers)
	r.mutex.Unlock()
	if !known {
		r.Prepared(claim, answers)
	}
}

// Refused reports that a call to prepare the claim failed. The reason is one word in CamelCase, the message states what happened, where, and what
// to do.
func (r *Reporter) Refused(claim prepare.Ref, reason, message string) {
	message = diagnosis.Clip(message)
	r.enqueue(claim, &statusUpdate{claim: claim, desired: refusedState(reason, message), notices: []notice{{reason: reason, message: message}}})
}

// Unprepared reports that the claim has no device on the node.
func (r *Reporter) Unprepared(claim prepare.Ref) {
	r.enqueue(claim, &statusUpdate{claim: claim, desired: unpreparedState})
}

// DaemonRestarted reports on the claims that the MPS daemon which serves them was restarted, and why: CUDA programs that were connected to it
// have failed.
func (r *Reporter) DaemonRestarted(daemon string, claims []prepare.Ref, reason string) {
	text := diagnosis.Clip(fmt.Sprintf("MPS daemon %s was restarted: %s. CUDA programs that were connected to it have failed: restart them", daemon, reason))
	for _, claim := range claims {
		r.enqueue(claim, &statusUpdate{claim: claim, notices: []notice{{reason: ReasonDaemonRestarted, message: text}}})
	}
}

// MemoryLimitFailed reports on the claim that a container with its devices does not start, because its GPU memory cannot be limited.
func (r *Reporter) MemoryLimitFailed(claim prepare.Ref, cause error) {
	text := diagnosis.Clip(fmt.Sprintf("on node %s: a container did not start, because its GPU memory cannot be limited: %v; kubelet starts it again", r.Node, cause))
	r.enqueue(claim, &statusUpdate{claim: claim, notices: []notice{{reason: ReasonMemoryLimitFailed, message: text}}})
}

// MemoryLimitChanged reports on the claim that its memory limit was changed, with a sentence about it.
func (r *Reporter) MemoryLimitChanged(claim prepare.Ref, text string) {
	text = diagnosis.Clip(fmt.Sprintf("on node %s: %s", r.Node, text))
	r.enqueue(claim, &statusUpdate{claim: claim, notices: []notice{{kind: corev1.EventTypeNormal, reason: ReasonMemoryLimitChanged, message: text}}})
}

// manager is the field manager of this agent's entries. It contains the node, so that agents of two nodes do not replace each other's entries. It
// has at most 128 characters.
func (c Config) manager() string {
	name := c.Driver + "/" + c.Node
	if len(name) <= maxManager {
		return name
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name))
	return fmt.Sprintf("%s/%x", c.Driver, sum.Sum(nil))
}

const maxManager = 128
