package nvml

import (
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventSets are those of a connection that are in use. All are given back before the connection ends: what is left open keeps the
// driver's module in use and is in the way of a reset.
type eventSets struct {
	mu   sync.Mutex
	open []nvml.EventSet
}

func (s *eventSets) add(set nvml.EventSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, set)
}

// free gives a set back, once; none is no set.
func (s *eventSets) free(set nvml.EventSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, set); i >= 0 {
		set.Free()
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// end gives all back; nobody waits for an event any more.
func (s *eventSets) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range s.open {
		set.Free()
	}
	s.open = nil
}
