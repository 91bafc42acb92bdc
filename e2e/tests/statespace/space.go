// Package statespace visits everything that can happen in a model, breadth first, and remembers how it came to be: what searches of models share.
package statespace

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Space is what has been found of everything that can happen from a start: each state once, in the order in which it was found. It is not safe for
// concurrent use.
type Space[S comparable] struct {
	name   string
	seen   map[S]struct{}
	states []S
	// from and by are the state that each was first found from, and what leads there.
	from []int
	by   []string
}

// New returns a space in which only the start has been found. Findings are reported with the name.
func New[S comparable](name string, start S) *Space[S] {
	s := &Space[S]{name: name, seen: map[S]struct{}{}}
	s.Visit(start, -1, "start")
	return s
}

// Visit notes a state to which something leads from the n-th one. One that was found before is left as it was.
func (s *Space[S]) Visit(state S, n int, by string) {
	if _, found := s.seen[state]; found {
		return
	}
	s.seen[state] = struct{}{}
	s.states, s.from, s.by = append(s.states, state), append(s.from, n), append(s.by, by)
}

// Try visits what becomes of a state, the n-th one or one like it, when something happens to it, and reports whether that can happen.
func (s *Space[S]) Try(n int, state S, by string, do func(*S) bool) bool {
	happens := do(&state)
	if happens {
		s.Visit(state, n, by)
	}
	return happens
}

// All returns the states with their numbers, those too that are found meanwhile.
func (s *Space[S]) All() iter.Seq2[int, S] {
	return func(yield func(int, S) bool) {
		for n := 0; n < len(s.states) && yield(n, s.states[n]); n++ {
		}
	}
}

// Len returns how many states have been found.
func (s *Space[S]) Len() int { return len(s.states) }

// Finding returns that something is wrong with a state, to which the tail leads from the n-th one.
func (s *Space[S]) Finding(what string, n int, at S, tail ...string) *Finding[S] {
	var path []string
	for ; n >= 0; n = s.from[n] {
		path = append(path, s.by[n])
	}
	slices.Reverse(path)
	return &Finding[S]{what, append(append([]string{s.name}, path...), tail...), at}
}

// Finding is a state with which something is wrong, and the way to it.
type Finding[S any] struct {
	What string
	Path []string
	At   S
}

func (f *Finding[S]) Error() string {
	return fmt.Sprintf("%s\n  %s\n  at %+v", f.What, strings.Join(f.Path, "\n  "), f.At)
}
