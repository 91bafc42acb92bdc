package subject

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// scoreTimes collects the time of our plugin's Score for every pod: the sum over all nodes, and the normalization.
type scoreTimes struct {
	// running is the sum for the pod of the running cycle in ns. Cycles follow one another; the nodes of one are concurrent.
	running atomic.Int64

	mutex sync.Mutex
	ended []time.Duration
}

// newPlugin returns our plugin, whose Score is timed.
func (s *scoreTimes) newPlugin(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	made, err := plugin.New(ctx, args, h)
	if err != nil {
		return nil, err
	}
	ours, ok := made.(*plugin.Plugin)
	if !ok {
		return nil, fmt.Errorf("make our plugin: unexpected type %T", made)
	}
	return &timedPlugin{Plugin: ours, times: s}, nil
}

// take returns the times of the pods since the last call. Without our plugin there are none.
func (s *scoreTimes) take() []time.Duration {
	if s == nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	ended := s.ended
	s.ended = nil
	return ended
}

// end ends the scores of a pod.
func (s *scoreTimes) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ended = append(s.ended, time.Duration(s.running.Swap(0)))
}

// timedPlugin is our plugin with a clock around Score and NormalizeScore.
type timedPlugin struct {
	*plugin.Plugin
	times *scoreTimes
}

// Score is called for several nodes concurrently.
func (p *timedPlugin) Score(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	began := time.Now()
	defer func() { p.times.running.Add(int64(time.Since(began))) }()
	return p.Plugin.Score(ctx, cs, pod, info)
}

// ScoreExtensions returns the plugin with its clock.
func (p *timedPlugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore ends the scores of the pod.
func (p *timedPlugin) NormalizeScore(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	began := time.Now()
	status := p.Plugin.NormalizeScore(ctx, cs, pod, scores)
	p.times.running.Add(int64(time.Since(began)))
	p.times.end()
	return status
}
