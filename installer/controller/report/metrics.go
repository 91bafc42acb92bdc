// Package report publishes what the controller does: metrics, Events, and the reasons why actions fail.
package report

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Metrics are the installer's metrics, in addition to controller-runtime's. It is safe for concurrent use.
type Metrics struct {
	timeToReady prometheus.Histogram
	phases      *prometheus.HistogramVec
	evictions   *prometheus.CounterVec
	nodes       *prometheus.GaugeVec
	reasons     *prometheus.GaugeVec
	stages      *prometheus.GaugeVec
	// remedies counts GPUs with a fault, remediations the remediations that have ended.
	remedies     *prometheus.GaugeVec
	remediations *prometheus.CounterVec

	mutex sync.Mutex
	// states has what is counted of each node.
	states map[string]nodeState
}

// nodeState is what is counted of a node.
type nodeState struct {
	phase  v1alpha1.NodePhase
	reason string
	// steps are the steps of its remediations, joined, so that states can be compared.
	steps string
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	buckets := prometheus.ExponentialBuckets(1, 2, 13) // 1 s to more than an hour
	m := &Metrics{
		timeToReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tessera_installer_time_to_ready_seconds", Help: "Time from the creation of a GPUNode to its first successful validation, in seconds.", Buckets: buckets,
		}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tessera_installer_phase_duration_seconds", Help: "Time that nodes spent in a phase, or in a step of an upgrade, recorded at its end, in seconds.", Buckets: buckets,
		}, []string{"phase", "step"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tessera_installer_evictions_total", Help: "Evictions of pods with GPU claims, by result: granted or refused.",
		}, []string{"result"}),
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_installer_nodes", Help: "GPU nodes, by phase.",
		}, []string{"phase"}),
		reasons: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_installer_stuck_nodes", Help: "GPU nodes in phase Blocked, Failed or RolledBack, by reason.",
		}, []string{"phase", "reason"}),
		stages: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_installer_rollout", Help: "Stage of the rollout of an owner's driver: 1 for the current stage.",
		}, []string{"owner", "stage"}),
		remedies: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tessera_installer_unhealthy_gpus", Help: "Unhealthy GPUs, by the step of their remediation.",
		}, []string{"step"}),
		remediations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tessera_installer_remediations_total", Help: "Completed remediations of GPUs, by outcome.",
		}, []string{"outcome"}),
		states: map[string]nodeState{},
	}
	for _, c := range []prometheus.Collector{m.timeToReady, m.phases, m.evictions, m.nodes, m.reasons, m.stages, m.remedies, m.remediations} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.initialize()
	return m, nil
}

// initialize creates the series of the label values that are known, so that a rate includes the first event.
func (m *Metrics) initialize() {
	for _, result := range []string{granted, refused} {
		m.evictions.WithLabelValues(result)
	}
	for _, outcome := range []v1alpha1.RemediationOutcome{v1alpha1.OutcomeRecovered, v1alpha1.OutcomeFailed, v1alpha1.OutcomeStopped} {
		m.remediations.WithLabelValues(string(outcome))
	}
	for _, step := range v1alpha1.RemediationSteps() {
		m.remedies.WithLabelValues(string(step))
	}
}

// Values of the label result of evictions.
const (
	granted = "granted"
	refused = "refused"
)

// ObserveNode counts a node by the status that is about to be written, and observes the time in the phase that it leaves.
func (m *Metrics) ObserveNode(node *v1alpha1.GPUNode, status v1alpha1.GPUNodeStatus, now time.Time) {
	old := node.Status
	if old.Phase != "" && (old.Phase != status.Phase || old.Step != status.Step) {
		m.phases.WithLabelValues(string(old.Phase), string(old.Step)).Observe(now.Sub(old.Since.Time).Seconds())
	}
	var steps []string
	for _, r := range status.Remediations {
		steps = append(steps, string(r.Step))
	}
	m.move(node.Name, nodeState{status.Phase, status.Reason, strings.Join(steps, " ")})
}

// move counts a node by its new state instead of its old one.
func (m *Metrics) move(node string, now nodeState) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	before, known := m.states[node]
	if known && before == now {
		return
	}
	if known {
		m.count(before, -1)
	}
	m.states[node] = now
	m.count(now, 1)
}

// RemoveNode stops counting a node.
func (m *Metrics) RemoveNode(node string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if before, known := m.states[node]; known {
		m.count(before, -1)
		delete(m.states, node)
	}
}

func (m *Metrics) count(s nodeState, by float64) {
	m.nodes.WithLabelValues(string(s.phase)).Add(by)
	for _, step := range strings.Fields(s.steps) {
		m.remedies.WithLabelValues(step).Add(by)
	}
	switch s.phase {
	case v1alpha1.PhaseBlocked, v1alpha1.PhaseFailed, v1alpha1.PhaseRolledBack:
		m.reasons.WithLabelValues(string(s.phase), s.reason).Add(by)
	case v1alpha1.PhaseAbsent, v1alpha1.PhasePreflight, v1alpha1.PhaseDriverInstalling, v1alpha1.PhaseDriverReady, v1alpha1.PhaseToolkitReady,
		v1alpha1.PhaseAgentReady, v1alpha1.PhaseValidating, v1alpha1.PhaseReady, v1alpha1.PhaseUpgrading:
	}
}

// SetRolloutStage sets the stage of an owner's rollout; nil means that there is none.
func (m *Metrics) SetRolloutStage(owner string, rollout *v1alpha1.RolloutStatus) {
	m.stages.DeletePartialMatch(prometheus.Labels{"owner": owner})
	if rollout != nil {
		m.stages.WithLabelValues(owner, string(rollout.Stage)).Set(1)
	}
}

// ObserveTimeToReady observes the time from the creation of a GPUNode to its first successful validation.
func (m *Metrics) ObserveTimeToReady(d time.Duration) { m.timeToReady.Observe(d.Seconds()) }

// AddEvictions counts evictions by the answer of the API server.
func (m *Metrics) AddEvictions(permitted, rejected int) {
	m.evictions.WithLabelValues(granted).Add(float64(permitted))
	m.evictions.WithLabelValues(refused).Add(float64(rejected))
}

// CountRemediation counts a remediation that has ended.
func (m *Metrics) CountRemediation(outcome v1alpha1.RemediationOutcome) {
	m.remediations.WithLabelValues(string(outcome)).Inc()
}
