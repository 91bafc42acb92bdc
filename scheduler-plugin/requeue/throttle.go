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
// the debt, the less the next attempts may take, down to the minimum. Large requirements, for which the minimum is not enough
// for sure, are tried only while the debt is small. So are requirements that exceeded a limit, after an exponential backoff.
// They are identified by a digest, so that equal pods count once. Pods that wait are retried one by one, in turns that are so
// far apart that an attempt is repaid before the next one.
//
// Example: the limit is 200 ms and the share 10 %, so that there is a turn every half second. Of 100 different pods that are
// too complex, the first one takes 200 ms. If the others are large, they wait for their turns without an attempt, the last one
// 50 s. Otherwise they take the minimum each, and wait then.
type Throttle struct {
	limit time.Duration
	now   func() time.Time

	mu sync.Mutex
	// debt is what is not repaid at the time changed.
	debt    time.Duration
	changed time.Time
	// turn is the time of the last turn that was given away.
	turn time.Time
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

// NewThrottle returns a throttle with the time that one attempt may take at most. It starts with an eighth of it as debt: a
// scheduler that is restarted, perhaps again and again, meets the same pods and has no digests of them.
func NewThrottle(limit time.Duration, now func() time.Time) *Throttle {
	t := &Throttle{limit: limit, now: now, changed: now(), rejected: lru.New(maxRejections)}
	t.debt = t.smallDebt()
	return t
}

// Admit returns the part of the limit that an attempt may take, between 0 and 1, or how long the pod must wait. large reports
// that the attempt takes more than the minimum for sure. digest is called only if there are rejected requirements.
//
// A pod that must wait is not to be tried again before: each call that returns a wait gives a turn away.
func (t *Throttle) Admit(large bool, digest func() string) (part float64, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.repay()
	var r *rejection
	if t.rejected.Len() > 0 {
		r = t.rejection(digest())
	}
	switch {
	case r != nil && r.next.After(t.changed):
		return 0, t.nextTurn(r.next.Sub(t.changed))
	case (large || r != nil) && t.debt > t.smallDebt():
		return 0, t.nextTurn(0)
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
	return t.nextTurn(r.backoff)
}

// Accept records that an attempt ended within the limits.
func (t *Throttle) Accept(digest func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rejected.Len() > 0 {
		t.rejected.Remove(digest())
	}
}

// smallDebt is the largest debt with which requirements that take more than the minimum are tried: less than one attempt leaves.
func (t *Throttle) smallDebt() time.Duration { return t.limit / 8 }

// nextTurn returns the time until the next turn, at least the given one. The first turn is when the debt is small again. No pod
// waits for its turn for longer than for the longest backoff, however many there are: pods for which there was no other turn
// before are then admitted only if the debt is small.
func (t *Throttle) nextTurn(least time.Duration) time.Duration {
	next := t.turn.Add(t.limit / 4 * repaidShare)
	repaid := max(firstBackoff, (t.debt-t.smallDebt())*repaidShare)
	if first := t.changed.Add(repaid); next.Before(first) {
		next = first
	}
	if last := t.changed.Add(longestBackoff); next.After(last) {
		next = last
	}
	t.turn = next
	return max(least, next.Sub(t.changed))
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
