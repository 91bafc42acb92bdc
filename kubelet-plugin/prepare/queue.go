package prepare

import (
	"context"
	"slices"
	"sync"
)

// queue grants names to the goroutines of this process in the order of their requests. The zero value is ready for use; it is safe for
// concurrent use.
type queue struct {
	mutex sync.Mutex
	lines map[string][]*ticket
}

// ticket is a place in a line. The first ticket of a line has its turn.
type ticket struct {
	owner string
	turn  chan struct{}
}

// enter waits until the name is granted and returns the function that returns it. If ctx ends first, the error is a heldError. A free name is
// granted even if ctx has ended.
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

// tryEnter grants the name if it is free and has no waiters.
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

// first returns the ticket that has the name. The line must not be empty.
func (q *queue) first(name string) *ticket {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.lines[name][0]
}

// leave removes the ticket from the line, whether it has the name or waits. The next ticket gets the name; an empty line is deleted.
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
