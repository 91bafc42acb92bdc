package monitoring

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The limits of a request.
const (
	// maxRefusals is the number of refusals after which monitoring returns and the change is not tried for a while.
	maxRefusals = 10
	// maxDelay is the longest pause between two attempts. It begins with a second and doubles: ten attempts take about 40 s, which is longer than the
	// grace period of a pod.
	maxDelay = 5 * time.Second
	// minRest is the pause after maxRefusals. It doubles up to maxRest while the change is refused.
	minRest, maxRest = 5 * time.Minute, time.Hour
	// expiry is how long a request lasts without another attempt, for example because the claim was deleted.
	expiry = time.Minute
)

// Config has what Requests need.
type Config struct {
	// Removable reports whether an installer acts on the requests.
	Removable bool
	// Holders returns the programs on the node that have a GPU open, such as "dcgm-exporter (4711)". It is for messages and may miss some.
	Holders func() []string
}

// Requests are the changes of the MIG mode that the driver refuses. It is safe for concurrent use. A new agent begins without requests.
type Requests struct {
	config Config

	mu    sync.Mutex
	byGPU map[string]*request
}

// request is the refused change of one GPU.
type request struct {
	refusals int
	// last is the time of the last refusal.
	last time.Time
	// until is the end of the pause after maxRefusals, rest its length; zero before.
	until time.Time
	rest  time.Duration
	// message describes the last refusals for users; it is set while resting.
	message string
}

// New returns Requests without any.
func New(config Config) *Requests { return &Requests{config: config, byGPU: map[string]*request{}} }

// Retry is called after the driver refused to change the MIG mode of a GPU because a program has it open. It requests that monitoring leave the node,
// waits, and returns nil if the change is to be tried again. Otherwise it returns the error for the claim, which wraps the refusal: without an
// installer, when ctx ends, and after maxRefusals until the pause has ended.
func (r *Requests) Retry(ctx context.Context, gpuName string, refusal error) error {
	if !r.config.Removable {
		return fmt.Errorf("%w: %s", refusal, r.advice())
	}
	delay, err := r.refused(gpuName, refusal)
	if err != nil {
		return err
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: monitoring pods are leaving the node for the change, the agent tries again: %w", refusal, context.Cause(ctx))
	}
}

// refused counts a refusal and returns the delay before the next attempt, or the error while resting.
func (r *Requests) refused(gpuName string, refusal error) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	q, known := r.byGPU[gpuName]
	if !known {
		q = &request{}
		r.byGPU[gpuName] = q
	}
	now := time.Now()
	q.last = now
	if now.Before(q.until) {
		return 0, fmt.Errorf("%w: %s", refusal, q.message)
	}
	if q.refusals++; q.refusals < maxRefusals {
		return min(time.Second<<(q.refusals-1), maxDelay), nil
	}
	q.refusals, q.rest = 0, min(max(2*q.rest, minRest), maxRest)
	q.until = now.Add(q.rest)
	q.message = fmt.Sprintf("refused %d times although monitoring pods were to leave the node: %s; monitoring returns for %v, then the agent tries again",
		maxRefusals, r.advice(), q.rest)
	return 0, fmt.Errorf("%w: %s", refusal, q.message)
}

// Done ends the request of a GPU whose mode was changed.
func (r *Requests) Done(gpuName string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byGPU, gpuName)
}

// Status returns the requests for the GPUNode, by name of the GPU; nil without any. It is called every second.
func (r *Requests) Status() []v1alpha1.BusyGPU {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	var list []v1alpha1.BusyGPU
	for _, name := range slices.Sorted(maps.Keys(r.byGPU)) {
		change := v1alpha1.BusyGPU{GPU: name, State: v1alpha1.BusyPausingMonitoring, Message: "a claim needs another MIG mode, which a program prevents that has the GPU open"}
		if q := r.byGPU[name]; time.Now().Before(q.until) {
			change.State, change.Message = v1alpha1.BusyRefused, q.message
		}
		list = append(list, change)
	}
	return list
}

// expire removes requests without a recent attempt. The caller holds mu.
func (r *Requests) expire() {
	maps.DeleteFunc(r.byGPU, func(_ string, q *request) bool {
		now := time.Now()
		return now.Sub(q.last) > expiry && !now.Before(q.until.Add(expiry))
	})
}

// advice names the programs that have a GPU open and what to do.
func (r *Requests) advice() string {
	const condition = "the driver changes the MIG mode only while no other program has the GPU open"
	holders := r.config.Holders()
	if len(holders) == 0 {
		return condition + ": end the monitoring programs on the node (fuser -v /dev/nvidia* lists them)"
	}
	return condition + ": end " + strings.Join(holders, ", ") + " or move their pods to other nodes"
}
