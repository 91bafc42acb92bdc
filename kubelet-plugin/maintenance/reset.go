package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Resetter resets GPUs.
type Resetter interface {
	// Reset resets the GPUs together and returns when, as soon as all of them respond again. The caller ensures that no claim is prepared on
	// them or being prepared. Reset calls touch right before it changes the hardware. An error that wraps gpu.ErrBusy names the processes
	// that use one of the GPUs; Reset is called again later. It returns soon after ctx ends, whatever the hardware does.
	Reset(ctx context.Context, gpus []string, touch func()) (at time.Time, err error)
}

// The times of resets.
const (
	// lockTimeout limits the wait for the GPUs' locks, resetTimeout the reset.
	lockTimeout  = time.Minute
	resetTimeout = 2 * time.Minute
	// retryDelay is the pause after an attempt that could not begin. After an attempt on a GPU in use it is busyRetryDelay, doubled with
	// each further one up to maxBusyRetryDelay: each attempt may close the driver for all GPUs of the node.
	retryDelay        = 2 * time.Second
	busyRetryDelay    = 20 * time.Second
	maxBusyRetryDelay = 5 * time.Minute
	// busyReportDelay is how long after its begin an attempt is reported as Resetting if the previous one found a GPU in use: the state
	// must not change with every attempt.
	busyReportDelay = 10 * time.Second
)

var (
	// errHeld and errEntering are returned when claims hold the GPUs, or are being prepared on them.
	errHeld     = errors.New("claims hold the GPU")
	errEntering = errors.New("claims are still being prepared on the GPU")
	// errWithdrawn is returned when the order was withdrawn.
	errWithdrawn = errors.New("the reset was canceled")
)

// resets performs the resets of remedies in the background. It is safe for concurrent use.
type resets struct {
	config Config
	wake   func()

	mu sync.Mutex
	// byID are the resets that this process has attempted or read, by the ID of the remedy.
	byID map[string]*reset
	// running are the attempts in progress.
	running sync.WaitGroup
}

// reset is the state of the reset of one remedy.
type reset struct {
	// running is whether an attempt is in progress, next the earliest time of another one.
	running bool
	next    time.Time
	// touched is when the attempt in progress began to change the hardware; zero before that.
	touched time.Time
	// busyDelay is the pause because the last attempt found a GPU in use; zero otherwise. obstacle is why the last attempt could not begin.
	busyDelay time.Duration
	obstacle  string
	// outcome is the result, even if it could not be stored.
	outcome *Outcome
}

func newResets(c Config, wake func()) *resets {
	return &resets{config: c, wake: wake, byID: map[string]*reset{}}
}

// advance begins the reset of the hold if it is due, and returns the state of its remedy. prepared is the number of claims on its GPUs.
func (r *resets) advance(ctx context.Context, h Hold, prepared int) v1alpha1.AgentRemediation {
	a := v1alpha1.AgentRemediation{ID: h.ID, PreparedClaims: int32(prepared)} //nolint:gosec // a node has a few thousand claims at most
	a.State, a.Message = r.progress(h)
	switch {
	case a.State != v1alpha1.RemediationStateHolding || h.Step != v1alpha1.OrderReset:
	case prepared > 0:
		a.Message = fmt.Sprintf("waiting for %d claims on %s to be released", prepared, strings.Join(h.GPUs, ", "))
	default:
		r.start(ctx, h)
	}
	return a
}

// progress returns the state of the remedy's reset.
func (r *resets) progress(h Hold) (v1alpha1.AgentRemediationState, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.byID[h.ID]
	if one == nil {
		one = &reset{}
		r.byID[h.ID] = one
	}
	if one.outcome == nil && one.touched.IsZero() {
		r.mu.Unlock()
		// An error only means that the GPU stays held: perform reads the outcome again before a reset.
		outcome, _ := r.config.Gate.loadOutcome(h.ID)
		r.publishReset(outcome)
		r.mu.Lock()
		one.outcome = cmp.Or(one.outcome, outcome)
	}
	switch {
	case one.outcome != nil:
		return one.outcome.State, one.outcome.Message
	case !one.touched.IsZero() && (one.busyDelay == 0 || time.Since(one.touched) >= busyReportDelay):
		return v1alpha1.RemediationStateResetting, ""
	}
	return v1alpha1.RemediationStateHolding, one.obstacle
}

// publishReset calls WasReset for a successful outcome, whichever agent made it: that agent may have ended before it could.
func (r *resets) publishReset(o *Outcome) {
	if o != nil && o.State == v1alpha1.RemediationStateReset && !o.At.IsZero() {
		r.config.WasReset(o.GPUs, o.At)
	}
}

// retain drops the resets of other remedies than the holds', unless an attempt is in progress.
func (r *resets) retain(holds []Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := map[string]bool{}
	for _, h := range holds {
		current[h.ID] = true
	}
	for id, one := range r.byID {
		if !current[id] && !one.running {
			delete(r.byID, id)
		}
	}
}

// start begins an attempt to reset the GPUs of the hold in the background, unless one is in progress or it is too early.
func (r *resets) start(ctx context.Context, h Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.byID[h.ID]
	if one.running || time.Now().Before(one.next) {
		return
	}
	one.running = true
	r.running.Go(func() {
		limited, cancel := context.WithTimeout(ctx, lockTimeout)
		defer cancel()
		err := r.config.Exclusive(limited, h.GPUs, "the reset of "+h.GPU, func(context.Context) error {
			return r.perform(ctx, h, one)
		})
		r.update(func() {
			one.running, one.touched, one.busyDelay = false, time.Time{}, one.nextBusyDelay(err)
			one.next = time.Now().Add(max(one.busyDelay, retryDelay))
			if err != nil && ctx.Err() == nil {
				one.obstacle = err.Error()
			}
		})
		r.wake()
	})
}

// perform resets the GPUs and stores the outcome. The caller holds the GPUs' locks, so an outcome of an earlier attempt, also by another
// agent, is stored by now.
func (r *resets) perform(ctx context.Context, h Hold, one *reset) error {
	if err := ctx.Err(); err != nil {
		return err // another agent leads
	}
	earlier, err := r.config.Gate.loadOutcome(h.ID)
	if err != nil || earlier != nil {
		return err
	}
	if err := r.validateIdle(h); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Resetting GPUs", "gpus", h.GPUs, "remedy", h.ID, "reason", h.Reason)
	// The reset continues after ctx ends: an interrupted one leaves the GPU in an unknown state.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	at, err := r.config.Resetter.Reset(limited, h.GPUs, func() {
		r.update(func() { one.touched = time.Now() })
		r.wake()
	})
	if errors.Is(err, gpu.ErrBusy) {
		return err // the hardware was not changed: the GPU stays held, and the installer decides for how long
	}
	outcome := Outcome{ID: h.ID, State: v1alpha1.RemediationStateReset, GPUs: h.GPUs, At: at}
	if err != nil {
		outcome = Outcome{ID: h.ID, State: v1alpha1.RemediationStateFailed, Message: err.Error()}
	}
	klog.FromContext(ctx).Info("Reset ended", "gpus", h.GPUs, "remedy", h.ID, "state", outcome.State, "reason", outcome.Message)
	stored := r.config.Gate.saveOutcome(outcome)
	r.publishReset(&outcome)
	r.update(func() { one.outcome = &outcome })
	return stored
}

// validateIdle returns why the GPUs of the hold must not be reset, nil when they may be. The caller holds the GPUs' locks. All conditions
// are checked again here, because while the locks were waited for, the order may have been withdrawn and claims admitted.
func (r *resets) validateIdle(h Hold) error {
	closure, err := r.config.Gate.Closure()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(closure.Holds, func(now Hold) bool { return now.Step == v1alpha1.OrderReset && now.admitsAll(h) }) {
		return errWithdrawn
	}
	// The closure admits no further claims. A call that was admitted earlier may not have written its record yet.
	if drained, err := r.config.Gate.drained(h.GPUs...); err != nil || !drained {
		return cmp.Or(err, errEntering)
	}
	prepared, err := r.config.PreparedOn(h.GPUs)
	if err == nil && prepared > 0 {
		err = fmt.Errorf("%d of them: %w", prepared, errHeld)
	}
	return err
}

// nextBusyDelay returns the pause after an attempt that found a GPU in use; zero if none was.
func (r *reset) nextBusyDelay(err error) time.Duration {
	if !errors.Is(err, gpu.ErrBusy) {
		return 0
	}
	return min(max(2*r.busyDelay, busyRetryDelay), maxBusyRetryDelay)
}

// update changes the state of resets.
func (r *resets) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}
