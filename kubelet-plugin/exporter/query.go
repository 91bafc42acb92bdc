package exporter

import (
	"errors"
	"sync"
	"time"
)

// errTimeout is returned when a query did not end in time. It continues.
var errTimeout = errors.New("the query timed out")

// cachedQuery is a slow query with a cached result: at most one runs at a time, and none while the last result is newer than maxAge. All methods are
// safe for concurrent use.
type cachedQuery[T any] struct {
	// query runs the query. While it hangs, no other one is started.
	query func() (T, error)
	// maxAge is how long a result is used; timeout bounds the wait for one.
	maxAge, timeout time.Duration

	mu sync.Mutex
	// pending is the query in progress; nil without one.
	pending *pendingQuery
	result  result[T]
}

// pendingQuery is a query in progress.
type pendingQuery struct {
	// started is when it began; done is closed when it has ended.
	started time.Time
	done    chan struct{}
}

// result is the result of a query, and when it ended.
type result[T any] struct {
	value T
	err   error
	at    time.Time
}

// get returns a result that is not older than maxAge. It waits until the query has taken timeout; then it returns the last result with errTimeout.
// A query that hangs is waited for once.
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

// start returns the query in progress, and starts one if the last result is too old; nil if it is not.
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
