package requeue

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Hint is what the next attempt of a pod must do differently.
type Hint int

const (
	// AllNodes makes the attempt consider every node.
	AllNodes Hint = iota + 1
	// InTreeOnly makes the attempt consider every node and leave every choice of devices to the in-tree allocator.
	InTreeOnly
)

// Hints holds at most one hint per pod, until the pod's next attempt takes it. Hints of pods that are never tried
// again are dropped when there are more than maxHints, the oldest first. It is safe for concurrent use.
type Hints struct {
	mu    sync.Mutex
	byPod map[types.UID]Hint
	order []types.UID
}

// maxHints limits the number of pods with a hint. Dropping a hint too early costs its pod one attempt.
const maxHints = 4096

// NewHints returns an empty set of hints.
func NewHints() *Hints { return &Hints{byPod: map[types.UID]Hint{}} }

// Set sets the pod's hint. The stronger hint wins: AllNodes does not replace InTreeOnly.
func (h *Hints) Set(pod types.UID, hint Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.byPod[pod]; !ok {
		h.order = append(h.order, pod)
	}
	h.byPod[pod] = max(h.byPod[pod], hint)
	for len(h.order) > maxHints {
		delete(h.byPod, h.order[0])
		h.order = h.order[1:]
	}
}

// Take returns the pod's hint and removes it. It returns zero if there is none.
func (h *Hints) Take(pod types.UID) Hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	hint, ok := h.byPod[pod]
	if !ok {
		return 0
	}
	delete(h.byPod, pod)
	for i := range h.order {
		if h.order[i] == pod {
			h.order = append(h.order[:i], h.order[i+1:]...)
			break
		}
	}
	return hint
}
