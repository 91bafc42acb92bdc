package nvml

import (
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventSets has the event sets of a connection that are in use. All are freed before the connection ends: an open set
// keeps the driver's kernel module in use and blocks a reset. It is safe for concurrent use.
type eventSets struct {
	mu   sync.Mutex
	open []nvml.EventSet
}

func (s *eventSets) add(set nvml.EventSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, set)
}

// free frees a set, once. A set that is not in use, such as the zero value, is ignored.
func (s *eventSets) free(set nvml.EventSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, set); i >= 0 {
		set.Free()
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// end frees all sets. The caller ensures that no wait for an event is in progress.
func (s *eventSets) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range s.open {
		set.Free()
	}
	s.open = nil
}
