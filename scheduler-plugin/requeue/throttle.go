package requeue

import (
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// Throttle limits how much of the scheduler's time is spent on pods whose requirements are too complex, however many there
// are. It is safe for concurrent use.
//
// Time that an attempt takes beyond a minimum is a debt, which is repaid at Throttle's share of the passing time. The larger
// the debt, the less the next attempts may take, down to the minimum. Requirements that exceeded a limit are tried again
// after an exponential backoff, and only while the debt is small. They are identified by a digest, so that equal pods count
// once.
//
// Example: the limit is 200 ms and the share 10 %. Of 100 different pods that are too complex, the first one takes 200 ms and
// all others the minimum. Two seconds later the debt is repaid, and one of the pods is tried again.
type Throttle struct {
	limit time.Duration
	now   func() time.Time

	mu sync.Mutex
	// debt is what is not repaid at the time changed.
	debt    time.Duration
	changed time.Time
	// rejected are the requirements that exceeded a limit, by digest.
	rejected *lru.Cache
}

// rejection is the state of requirements that exceeded a limit.
type rejection struct {
	// next is the time of the next attempt, backoff the time before it.
	next    time.Time
	backoff time.Duration
}

// A second repays a tenth of a second. The backoff starts at one second and is doubled up to five minutes.
const (
	repaidShare    = 10
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
	maxRejections  = 4096
)

// NewThrottle returns a throttle with the time that one attempt may take at most. It starts with a quarter of it as debt: a
// scheduler that is restarted, perhaps again and again, meets the same pods and has no digests of them.
func NewThrottle(limit time.Duration, now func() time.Time) *Throttle {
	return &Throttle{limit: limit, now: now, debt: limit / 4, changed: now(), rejected: lru.New(maxRejections)}
}

// Admit returns the part of the limit that an attempt may take, between 0 and 1, or how long the pod must wait. digest is
// called only if there are rejected requirements.
func (t *Throttle) Admit(digest func() string) (part float64, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repay()
	if t.rejected.Len() > 0 {
		if r := t.rejection(digest()); r != nil {
			if wait := r.next.Sub(t.changed); wait > 0 {
				return 0, wait
			}
			if excess := t.debt - t.limit/4; excess > 0 {
				return 0, max(r.backoff, excess*repaidShare)
			}
		}
	}
	return 1 - float64(t.debt)/float64(t.limit), 0
}

// Charge adds the time that an attempt took beyond the minimum.
func (t *Throttle) Charge(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repay()
	t.debt = min(t.limit, t.debt+took)
}

// Reject records that the requirements exceeded a limit, and returns how long the pod must wait. An attempt that made
// progress, so that the next one starts with other nodes, does not double the backoff.
func (t *Throttle) Reject(digest string, progress bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repay()
	r := t.rejection(digest)
	switch {
	case r == nil:
		r = &rejection{backoff: firstBackoff}
	case !progress:
		r.backoff = min(2*r.backoff, longestBackoff)
	}
	r.next = t.changed.Add(r.backoff)
	t.rejected.Add(digest, r)
	return r.backoff
}

// Accept records that an attempt ended within the limits.
func (t *Throttle) Accept(digest func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rejected.Len() > 0 {
		t.rejected.Remove(digest())
	}
}

func (t *Throttle) rejection(digest string) *rejection {
	known, ok := t.rejected.Get(digest)
	if !ok {
		return nil
	}
	r, _ := known.(*rejection)
	return r
}

// repay reduces the debt by what the time since the last call repays.
func (t *Throttle) repay() {
	now := t.now()
	t.debt = max(0, t.debt-now.Sub(t.changed)/repaidShare)
	t.changed = now
}
