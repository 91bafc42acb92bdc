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
	// pinned is how long a MIG device that no process uses must have been refused before monitoring leaves the node, and for how long it then stays away:
	// the driver may need some time after the end of a process.
	pinned = 2 * time.Minute
	// maxRefusals is the number of refusals of a mode after which monitoring returns and the change is not tried for a while.
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

// Requests are what the driver refuses on the node's GPUs. It is safe for concurrent use. A new agent begins without requests.
type Requests struct {
	config Config

	mu    sync.Mutex
	byGPU map[string]*request
}

// subject is what is refused.
type subject struct{ wanted, condition string }

var (
	mode = subject{"another MIG mode, which a program prevents that has the GPU open",
		"the driver changes the MIG mode only while no other program has the GPU open"}
	device = subject{"the memory of a MIG device that no process uses, and which the driver does not destroy while a program has the GPU open",
		"the driver does not destroy an unused MIG device while some monitoring programs have the GPU open"}
)

// request is what is refused on one GPU.
type request struct {
	subject  subject
	refusals int
	// first and last are the times of the first refusal, since the request began or the pause ended, and of the last one.
	first, last time.Time
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
		return fmt.Errorf("%w: %s", refusal, r.advice(mode))
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

// refused counts a refusal of a mode and returns the delay before the next attempt, or the error while resting.
func (r *Requests) refused(gpuName string, refusal error) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.note(gpuName, mode)
	if q.resting() {
		return 0, fmt.Errorf("%w: %s", refusal, q.message)
	}
	if q.refusals++; q.refusals < maxRefusals {
		return min(time.Second<<(q.refusals-1), maxDelay), nil
	}
	q.rests(fmt.Sprintf("refused %d times although monitoring pods were to leave the node: %s", maxRefusals, r.advice(mode)))
	return 0, fmt.Errorf("%w: %s", refusal, q.message)
}

// Pinned is called after the driver refused to destroy a MIG device of a GPU that no process uses. When it has done so for two minutes, it requests that
// monitoring leave the node, for at most two minutes. It returns the error for the claim, which wraps the refusal; the caller tries again in its own time.
func (r *Requests) Pinned(gpuName string, refusal error) error {
	if !r.config.Removable {
		return fmt.Errorf("%w: %s", refusal, r.advice(device))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.note(gpuName, device)
	switch since := q.last.Sub(q.first); {
	case q.resting():
		return fmt.Errorf("%w: %s", refusal, q.message)
	case since < pinned:
		return fmt.Errorf("%w: no process uses the MIG device; monitoring leaves the node if this lasts %v", refusal, pinned)
	case since < 2*pinned:
		return fmt.Errorf("%w: no process uses the MIG device; monitoring pods are leaving the node", refusal)
	}
	q.rests(fmt.Sprintf("refused for %v although monitoring pods were to leave the node: %s", pinned, r.advice(device)))
	return fmt.Errorf("%w: %s", refusal, q.message)
}

// note returns the request for the GPU with the time of this refusal. The caller holds mu.
func (r *Requests) note(gpuName string, s subject) *request {
	r.expire()
	q, known := r.byGPU[gpuName]
	if !known || q.subject != s {
		q = &request{subject: s}
		r.byGPU[gpuName] = q
	}
	q.last = time.Now()
	if q.first.IsZero() && !q.resting() {
		q.first = q.last
	}
	return q
}

// rests begins a pause, longer each time.
func (q *request) rests(message string) {
	q.rest = min(max(2*q.rest, minRest), maxRest)
	q.refusals, q.first, q.until = 0, time.Time{}, q.last.Add(q.rest)
	q.message = fmt.Sprintf("%s; monitoring returns for %v, then the agent tries again", message, q.rest)
}

func (q *request) resting() bool { return time.Now().Before(q.until) }

// pauses reports whether monitoring is to leave the node.
func (q *request) pauses() bool {
	return q.subject == mode || !q.first.IsZero() && q.last.Sub(q.first) >= pinned
}

// Done ends the request of a GPU whose mode was changed.
func (r *Requests) Done(gpuName string) { r.end(gpuName, mode) }

// Destroyed ends the request of a GPU whose MIG device was destroyed.
func (r *Requests) Destroyed(gpuName string) { r.end(gpuName, device) }

func (r *Requests) end(gpuName string, s subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q, known := r.byGPU[gpuName]; known && q.subject == s {
		delete(r.byGPU, gpuName)
	}
}

// Status returns the requests for the GPUNode, by name of the GPU; nil without any. It is called every second.
func (r *Requests) Status() []v1alpha1.BusyGPU {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	var list []v1alpha1.BusyGPU
	for _, name := range slices.Sorted(maps.Keys(r.byGPU)) {
		switch q := r.byGPU[name]; {
		case q.resting():
			list = append(list, v1alpha1.BusyGPU{GPU: name, State: v1alpha1.BusyRefused, Message: q.message})
		case q.pauses():
			list = append(list, v1alpha1.BusyGPU{GPU: name, State: v1alpha1.BusyPausingMonitoring, Message: "a claim needs " + q.subject.wanted})
		}
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
func (r *Requests) advice(s subject) string {
	holders := r.config.Holders()
	if len(holders) == 0 {
		return s.condition + ": end the monitoring programs on the node (fuser -v /dev/nvidia* lists them)"
	}
	return s.condition + ": end " + strings.Join(holders, ", ") + " or move their pods to other nodes"
}
