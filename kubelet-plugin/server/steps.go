package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Steps times the steps of claims. Observe is safe for concurrent use.
type Steps struct {
	durations *prometheus.HistogramVec

	mu sync.Mutex
	// begun is the start of the step that is being performed, by the claim's UID.
	begun map[string]time.Time
}

// NewSteps registers the metric of the steps.
func NewSteps(registry prometheus.Registerer) *Steps {
	s := &Steps{begun: map[string]time.Time{}, durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tessera_prepare_step_duration_seconds",
		Help:    "Duration of a successful step of preparing or unpreparing a claim, in seconds. Excludes waiting for the locks of GPUs and reading them.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
	}, []string{"step"})}
	registry.MustRegister(s.durations)
	return s
}

// Observe is a prepare.Observer. A step that fails is not timed: the errors are counted.
func (s *Steps) Observe(when prepare.When, claim prepare.Ref, step prepare.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun, known := s.begun[claim.UID]
	delete(s.begun, claim.UID)
	switch {
	case when == prepare.Before:
		s.begun[claim.UID] = time.Now()
	case known:
		s.durations.WithLabelValues(step.Kind.String()).Observe(time.Since(begun).Seconds())
	}
}
