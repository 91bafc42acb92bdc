package nvml

import (
	"sync"
	"time"
)

// maxChange is how long a change of a GPU may explain that other calls do not return. A longer one hangs itself.
const maxChange = 2 * time.Minute

// changes records the changes of GPUs by this process: MIG devices and modes. It is safe for concurrent use.
type changes struct {
	mu sync.Mutex
	// began are the times at which the changes in progress began, ended the time at which the last one ended.
	began map[int]time.Time
	next  int
	ended time.Time
}

// begin records the begin of a change; the caller calls end.
func (c *changes) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began == nil {
		c.began = map[int]time.Time{}
	}
	id := c.next
	c.next++
	c.began[id] = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.began, id)
		c.ended = time.Now()
	}
}

func (c *changes) since(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, began := range c.began {
		if time.Since(began) < maxChange {
			return true
		}
	}
	return c.ended.After(at)
}

// ChangedSince reports whether this process has created, completed or destroyed a MIG device or set a MIG mode since the time, or is doing so, for at
// most two minutes. The driver stalls other calls meanwhile, for any GPU.
func (s *Session) ChangedSince(at time.Time) bool { return s.changes.since(at) }
