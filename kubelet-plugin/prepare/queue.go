package prepare

import (
	"context"
	"slices"
	"sync"
)

// queue lets the goroutines of this process wait for named things in the order in which they came.
// The zero queue is ready; it is safe for concurrent use.
type queue struct {
	mutex sync.Mutex
	lines map[string][]*ticket
}

// ticket is a place in a line. The first ticket of a line has its turn.
type ticket struct {
	owner string
	turn  chan struct{}
}

// enter waits for the turn at the name and returns how to leave. When ctx ends and somebody else has the
// turn, the error is a heldError; a turn that is free is taken, also when ctx has ended.
func (q *queue) enter(ctx context.Context, name, owner string) (leave func(), err error) {
	own := q.join(name, owner)
	select {
	case <-own.turn:
	case <-ctx.Done():
		if holder := q.first(name); holder != own {
			q.leave(name, own)
			return nil, &heldError{holder: holder.owner, cause: context.Cause(ctx)}
		}
	}
	return func() { q.leave(name, own) }, nil
}

// tryEnter takes the turn at the name when nobody has it or waits for it.
func (q *queue) tryEnter(name, owner string) (leave func(), ok bool) {
	own := q.join(name, owner)
	select {
	case <-own.turn:
		return func() { q.leave(name, own) }, true
	default:
		q.leave(name, own)
		return nil, false
	}
}

func (q *queue) join(name, owner string) *ticket {
	own := &ticket{owner: owner, turn: make(chan struct{})}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if q.lines == nil {
		q.lines = map[string][]*ticket{}
	}
	if len(q.lines[name]) == 0 {
		close(own.turn)
	}
	q.lines[name] = append(q.lines[name], own)
	return own
}

// first returns the ticket that has its turn. Somebody stands in the line.
func (q *queue) first(name string) *ticket {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.lines[name][0]
}

// leave gives the ticket back, with or without its turn. The next in line gets the turn; a line in which
// nobody stands is forgotten.
func (q *queue) leave(name string, own *ticket) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	first := q.lines[name][0]
	rest := slices.DeleteFunc(q.lines[name], func(t *ticket) bool { return t == own })
	if len(rest) == 0 {
		delete(q.lines, name)
		return
	}
	q.lines[name] = rest
	if first == own {
		close(rest[0].turn)
	}
}
