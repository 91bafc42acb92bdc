package exporter

import (
	"errors"
	"sync"
	"time"
)

// errLate says that an answer did not come in time. The question stays open.
var errLate = errors.New("no answer in time")

// latest is the answer to a question that takes long: it is asked at most once at a time, and not
// before the last answer has become old. All methods are safe for concurrent use.
type latest[T any] struct {
	// ask answers the question. It may hang; then nobody asks again.
	ask func() (T, error)
	// fresh is how long an answer is good, patience how long one is waited for.
	fresh, patience time.Duration

	mu sync.Mutex
	// question is the open one; nil while none is.
	question *question
	answer   answer[T]
}

// question is one that was asked and not answered yet.
type question struct {
	// asked is when, answered is closed with the answer.
	asked    time.Time
	answered chan struct{}
}

// answer is what was answered when.
type answer[T any] struct {
	value T
	err   error
	at    time.Time
}

// get returns an answer that is good, waiting for it until the question has been open for the
// patience; then it returns the last answer with errLate. A question that hangs is waited for once.
func (l *latest[T]) get() answer[T] {
	open := l.open()
	if open == nil {
		return l.last()
	}
	timer := time.NewTimer(l.patience - time.Since(open.asked))
	defer timer.Stop()
	select {
	case <-open.answered:
		return l.last()
	case <-timer.C:
		late := l.last()
		late.err = errLate
		return late
	}
}

func (l *latest[T]) last() answer[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answer
}

// open returns the open question, asking it if nobody has; nil when the last answer is good.
func (l *latest[T]) open() *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.question != nil:
		return l.question
	case !l.answer.at.IsZero() && time.Since(l.answer.at) < l.fresh:
		return nil
	}
	open := &question{time.Now(), make(chan struct{})}
	l.question = open
	go func() {
		value, err := l.ask()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answer, l.question = answer[T]{value, err, time.Now()}, nil
		close(open.answered)
	}()
	return open
}
