package status

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	// workers is how many claims are written at once.
	workers = 4
	// maxPending is how many claims may wait; a node holds far fewer. What comes on top is dropped and counted:
	// claims that are prepared are told again.
	maxPending = 2048
	// maxNotices is how many notices of one claim may wait.
	maxNotices = 16
	// writeDelay is how long a status waits to be written: kubelet's calls for other claims go before, and a
	// claim that is taken back at once needs nothing written. Notices do not wait.
	writeDelay = 250 * time.Millisecond
	// minRetryDelay and latest bound the time between two tries for one claim.
	minRetryDelay, maxRetryDelay = 200 * time.Millisecond, 2 * time.Minute
)

// statusUpdate is what is to be done for one claim. It does not change once it is in the queue.
type statusUpdate struct {
	claim prepare.Ref
	// desired is what the status shall say; nil leaves it as it is, but for the health of the devices, which is looked at whenever it is written.
	desired desiredState
	// digest is of what the claim was prepared as, when say says so.
	digest digest
	// notices are Events that have not been told.
	notices []notice
}

// digest identifies what a claim was prepared as; the zero digest is nothing.
type digest [sha256.Size]byte

func digestOf(answers []prepare.Answer) digest {
	sum := sha256.New()
	for _, a := range answers {
		// What cannot be encoded is reported when it is written.
		text, _ := deviceData(a).raw()
		_, _ = sum.Write(text)
	}
	return digest(sum.Sum(nil))
}

// enqueue puts the errand into the queue. It takes the place of an older one of its claim, whose notices
// are still told.
func (r *Reporter) enqueue(claim prepare.Ref, e *statusUpdate) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	older, waits := r.updates[claim.UID]
	if !waits && len(r.updates) >= maxPending {
		r.metrics.dropped.Inc()
		return
	}
	if waits {
		e.merge(older)
	}
	if e.desired != nil {
		delete(r.confirmed, claim.UID)
	}
	r.updates[claim.UID] = e
	switch {
	case r.queue == nil:
	case len(e.notices) > 0:
		r.queue.Add(claim.UID)
	default:
		r.queue.AddAfter(claim.UID, writeDelay)
	}
}

// merge takes over what of the older errand is still to be done.
func (e *statusUpdate) merge(older *statusUpdate) {
	if e.desired == nil {
		e.desired, e.digest = older.desired, older.digest
	}
	notices := slices.Clone(older.notices)
	for _, n := range e.notices {
		if !slices.Contains(notices, n) {
			notices = append(notices, n)
		}
	}
	e.notices = notices[max(0, len(notices)-maxNotices):]
}

// openQueue makes the queue, with what was noted before.
func (r *Reporter) openQueue() workqueue.TypedRateLimitingInterface[string] {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay))
	for uid := range r.updates {
		r.queue.Add(uid)
	}
	return r.queue
}

// work performs errands until the queue is shut down. The queue gives a claim to one worker at a time.
func (r *Reporter) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], t *eventWriter) {
	for {
		uid, end := queue.Get()
		if end {
			return
		}
		if r.process(ctx, uid, t) {
			queue.Forget(uid)
		} else if ctx.Err() == nil {
			queue.AddRateLimited(uid)
		}
		queue.Done(uid)
	}
}

// process performs the claim's errand, if there is one, and reports whether it needs no other try.
func (r *Reporter) process(ctx context.Context, uid string, t *eventWriter) bool {
	r.mutex.Lock()
	e, waits := r.updates[uid]
	r.mutex.Unlock()
	if !waits {
		return true
	}
	logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(e.claim.Namespace, e.claim.Name), "claimUID", uid)
	err := r.write(klog.NewContext(ctx, logger), e, t)
	switch {
	case err == nil:
		r.finish(uid, e)
		return true
	case apierrors.IsConflict(err):
		logger.V(2).Info("The claim changed, retrying its status", "reason", err.Error())
	case ctx.Err() == nil:
		r.metrics.failures.Inc()
		logger.Error(err, "Claim status not written, retrying")
	}
	return false
}

// finish takes the errand off unless another one took its place meanwhile.
func (r *Reporter) finish(uid string, e *statusUpdate) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.updates[uid] != e {
		return
	}
	delete(r.updates, uid)
	if e.digest != (digest{}) && len(r.confirmed) < maxPending {
		r.confirmed[uid] = e.digest
	}
}

// depth is the number of claims that wait.
func (r *Reporter) depth() float64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return float64(len(r.updates))
}
