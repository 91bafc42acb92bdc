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
	// maxPending is the maximum number of claims with pending updates; a node has far fewer. Further ones are dropped and counted; prepared
	// claims are reported again by Reconcile.
	maxPending = 2048
	// maxNotices is the maximum number of pending notices of one claim.
	maxNotices = 16
	// writeDelay delays the write of a status, so that kubelet's calls for other claims have priority, and nothing is written for a claim that is
	// unprepared soon. Notices are not delayed.
	writeDelay = 250 * time.Millisecond
	// minRetryDelay and maxRetryDelay limit the time between two attempts for one claim.
	minRetryDelay, maxRetryDelay = 200 * time.Millisecond, 2 * time.Minute
)

// statusUpdate is a pending update of one claim. It is not modified after it was queued.
type statusUpdate struct {
	claim prepare.Ref
	// desired computes the desired entries; nil keeps the current ones, except for the health of the devices, which is always updated.
	desired desiredState
	// digest identifies the prepared devices, if desired reports any.
	digest digest
	// notices are Events that have not been written.
	notices []notice
}

// digest identifies the prepared devices of a claim; the zero digest is none.
type digest [sha256.Size]byte

func digestOf(answers []prepare.Answer) digest {
	sum := sha256.New()
	for _, a := range answers {
		// An encoding error is reported when the status is written.
		text, _ := deviceData(a).raw()
		_, _ = sum.Write(text)
	}
	return digest(sum.Sum(nil))
}

// enqueue queues the update. It replaces a pending one of the same claim, whose notices are kept.
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

// merge adds what the older update contains and this one does not.
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

// openQueue creates the queue with the updates that are pending.
func (r *Reporter) openQueue() workqueue.TypedRateLimitingInterface[string] {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetryDelay, maxRetryDelay))
	for uid := range r.updates {
		r.queue.Add(uid)
	}
	return r.queue
}

// work processes updates until the queue is shut down. The queue passes a claim to one worker at a time.
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

// process writes the claim's update, if there is one, and reports whether no retry is needed.
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

// finish removes the update unless another one has replaced it meanwhile.
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

// Depth returns the number of claims with pending updates.
func (r *Reporter) Depth() float64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return float64(len(r.updates))
}
