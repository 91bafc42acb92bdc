package plugin

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// mark is what the next attempt of a pod must do otherwise.
type mark int

const (
	// wide has it look at every node.
	wide mark = iota + 1
	// inTree has it leave every choice to the in-tree allocator.
	inTree
)

// marks are by pod. An attempt takes those of its pod; those of pods that never come back are dropped
// when there are too many, the oldest first. It is safe for concurrent use.
type marks struct {
	mu    sync.Mutex
	of    map[types.UID]mark
	order []types.UID
}

// mostMarks bounds the pods with a mark. One that is dropped too early costs its pod an attempt.
const mostMarks = 4096

func newMarks() *marks { return &marks{of: map[types.UID]mark{}} }

// set marks the pod. A mark to leave choices to the in-tree allocator, which looks at every node as well,
// is not replaced.
func (m *marks) set(pod types.UID, as mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.of[pod]; !ok {
		m.order = append(m.order, pod)
	}
	m.of[pod] = max(m.of[pod], as)
	for len(m.order) > mostMarks {
		delete(m.of, m.order[0])
		m.order = m.order[1:]
	}
}

// take returns the mark of the pod, zero for none, and forgets it.
func (m *marks) take(pod types.UID) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	as, ok := m.of[pod]
	if !ok {
		return 0
	}
	delete(m.of, pod)
	for i := range m.order {
		if m.order[i] == pod {
			m.order = append(m.order[:i], m.order[i+1:]...)
			break
		}
	}
	return as
}
