package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Config is what a Reporter needs; everything but Rules is required.
type Config struct {
	// Driver, Node and Pool say whose devices are reported.
	Driver, Node, Pool string
	Client             kubernetes.Interface
	// Health shows what is wrong with the GPUs, in the words of Rules; Records tell whom it concerns: claims that were prepared in this boot.
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
	// updates are what is still to be done, by the claim's UID; at most limit.
	updates map[string]*statusUpdate
	// confirmed are the claims whose status is known to tell what they were prepared as, with the digest
	// of that; at most limit.
	confirmed map[string]digest
	// queue holds the UIDs of errands while Run runs.
	queue workqueue.TypedRateLimitingInterface[string]
}

// New returns a reporter that takes note; it writes in Run.
func New(c Config) *Reporter {
	r := &Reporter{
		Config: c, owner: owner{driver: c.Driver, pool: c.Pool},
		updates: map[string]*statusUpdate{}, confirmed: map[string]digest{},
	}
	r.metrics = newMetrics(c.Registry, r.depth)
	return r
}

// Run writes until ctx ends. What is not written by then is told again by the next agent.
func (r *Reporter) Run(ctx context.Context) error {
	teller, end := r.newEventWriter(ctx)
	defer end()
	queue := r.openQueue()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { r.work(ctx, queue, teller) })
	}
	<-ctx.Done()
	queue.ShutDown()
	group.Wait()
	return nil
}

// Prepared says that the claim's devices are ready.
func (r *Reporter) Prepared(claim prepare.Ref, answers []prepare.Answer) {
	r.enqueue(claim, &statusUpdate{claim: claim, desired: preparedState(answers), digest: digestOf(answers)})
}

// Reconciled is Prepared for claims that are looked after again and again: what is known to be written is
// not looked at.
func (r *Reporter) Reconciled(claim prepare.Ref, answers []prepare.Answer) {
	r.mutex.Lock()
	known := r.confirmed[claim.UID] == digestOf(answers)
	r.mutex.Unlock()
	if !known {
		r.Prepared(claim, answers)
	}
}

// Refused says that a call to prepare the claim failed. The reason is one word in CamelCase, the message
// is for the claim's user: what, where, and what to do.
func (r *Reporter) Refused(claim prepare.Ref, reason, message string) {
	message = diagnosis.Clip(message)
	r.enqueue(claim, &statusUpdate{claim: claim, desired: refusedState(reason, message), notices: []notice{{reason: reason, message: message}}})
}

// Unprepared says that the claim has no device on the node any more.
func (r *Reporter) Unprepared(claim prepare.Ref) {
	r.enqueue(claim, &statusUpdate{claim: claim, desired: unpreparedState})
}

// DaemonRestarted tells the users of the claims that the MPS daemon which serves them was started anew,
// and why: CUDA programs that were connected to it have failed.
func (r *Reporter) DaemonRestarted(daemon string, claims []prepare.Ref, reason string) {
	text := diagnosis.Clip(fmt.Sprintf("MPS daemon %s was restarted: %s. CUDA programs that were connected to it have failed and must be restarted", daemon, reason))
	for _, claim := range claims {
		r.enqueue(claim, &statusUpdate{claim: claim, notices: []notice{{reason: ReasonDaemonRestarted, message: text}}})
	}
}

// manager is the name under which server-side apply knows this agent's entries: of the node, so that no
// agent takes the entries of another for its own. It has at most 128 characters.
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
