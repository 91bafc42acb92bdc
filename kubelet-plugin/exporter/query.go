package exporter

import (
	"errors"
	"sync"
	"time"
)

// errTimeout says that an answer did not come in time. The question stays open.
var errTimeout = errors.New("no answer in time")

// cachedQuery is the answer to a question that takes long: it is asked at most once at a time, and not
// before the last answer has become old. All methods are safe for concurrent use.
type cachedQuery[T any] struct {
	// query answers the question. It may hang; then nobody asks again.
	query func() (T, error)
	// maxAge is how long an answer is good, patience how long one is waited for.
	maxAge, timeout time.Duration

	mu sync.Mutex
	// pending is the open one; nil while none is.
	pending *pendingQuery
	result  result[T]
}

// pendingQuery is one that was asked and not answered yet.
type pendingQuery struct {
	// started is when, answered is closed with the answer.
	started time.Time
	done    chan struct{}
}

// result is what was answered when.
type result[T any] struct {
	value T
	err   error
	at    time.Time
}

// get returns an answer that is good, waiting for it until the question has been open for the
// patience; then it returns the last answer with errLate. A question that hangs is waited for once.
func (l *cachedQuery[T]) get() result[T] {
	open := l.start()
	if open == nil {
		return l.last()
	}
	timer := time.NewTimer(l.timeout - time.Since(open.started))
	defer timer.Stop()
	select {
	case <-open.done:
		return l.last()
	case <-timer.C:
		late := l.last()
		late.err = errTimeout
		return late
	}
}

func (l *cachedQuery[T]) last() result[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.result
}

// start returns the open question, asking it if nobody has; nil when the last answer is good.
func (l *cachedQuery[T]) start() *pendingQuery {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.pending != nil:
		return l.pending
	case !l.result.at.IsZero() && time.Since(l.result.at) < l.maxAge:
		return nil
	}
	open := &pendingQuery{time.Now(), make(chan struct{})}
	l.pending = open
	go func() {
		value, err := l.query()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.result, l.pending = result[T]{value, err, time.Now()}, nil
		close(open.done)
	}()
	return open
}
