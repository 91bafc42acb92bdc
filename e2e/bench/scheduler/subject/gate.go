package subject

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// gate is between the scheduling queue and the scheduling loop: while it is shut no cycle begins. It
// times the cycles, which follow one another.
type gate struct {
	next func(klog.Logger) (framework.QueuedEntityInfo, error)
	held atomic.Int32

	mutex  sync.Mutex
	opened chan struct{}
	isOpen bool
	// began is when the running cycle began, zero without one; idle is signaled when it ends.
	began  time.Time
	idle   *sync.Cond
	cycles []time.Duration
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	g.idle = sync.NewCond(&g.mutex)
	return g
}

// Next is scheduler.NextEntity.
func (g *gate) Next(logger klog.Logger) (framework.QueuedEntityInfo, error) {
	g.ended()
	<-g.passage()
	entity, err := g.next(logger)
	g.held.Store(1)
	<-g.passage() // it may have been shut while the queue was empty
	g.held.Store(0)
	g.mutex.Lock()
	g.began = time.Now()
	g.mutex.Unlock()
	return entity, err
}

// Held is the number of pods, none or one, that have left the queue and wait before the gate.
func (g *gate) Held() int { return int(g.held.Load()) }

func (g *gate) ended() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.began.IsZero() {
		g.cycles = append(g.cycles, time.Since(g.began))
		g.began = time.Time{}
		g.idle.Broadcast()
	}
}

// passage is closed while the gate is open.
func (g *gate) passage() <-chan struct{} {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.opened
}

// Open lets cycles begin.
func (g *gate) Open() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.isOpen {
		close(g.opened)
		g.isOpen = true
	}
}

// Shut lets no further cycle begin, and returns the cycles since it was opened, with the running one: its pod can be bound before it ends.
func (g *gate) Shut() []time.Duration {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.isOpen {
		g.opened, g.isOpen = make(chan struct{}), false
	}
	for !g.began.IsZero() {
		g.idle.Wait()
	}
	cycles := g.cycles
	g.cycles = nil
	return cycles
}
