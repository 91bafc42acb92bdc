package gpunode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Resetter resets GPUs.
type Resetter interface {
	// Reset resets the GPUs together and returns when that was done, as soon as all of them answer again. It is called while nobody prepares
	// anything on them and nothing is prepared there, and calls touch right before it touches them. An error that wraps gpu.ErrBusy says that
	// somebody has one open, and who; then it is called again later. It returns soon after ctx ends, whatever the hardware does.
	Reset(ctx context.Context, gpus []string, touch func()) (at time.Time, err error)
}

// Remedies is what it takes to obey orders about single GPUs. Everything is required.
type Remedies struct {
	Resetter Resetter
	// WasReset is told that the GPUs were reset together, when, and answer again: before the GPUNode is, and again by each agent that reads it.
	WasReset func(gpus []string, at time.Time)
	// Hold is told which GPUs are held for a remedy, by name, and why, whenever that changes: no new claims are to come to them.
	Hold func(held map[string]string)
	// Group returns the names of the GPUs that can only be reset together with this one, itself included; none where the node does not have it.
	Group func(gpuName string) []string
	// Prepared counts the claims that hold something of the GPUs.
	Prepared func(gpus []string) (int, error)
	// Exclusive runs do while nobody prepares or takes back anything on the GPUs, in any agent.
	Exclusive func(ctx context.Context, gpus []string, purpose string, do func(context.Context) error) error
}

// The times of resets.
const (
	// lockPatience is how long it is waited for the GPUs' locks, resetLimit how long a reset may take.
	lockPatience = time.Minute
	resetLimit   = 2 * time.Minute
	// again is when it is tried again after it could not begin, busyAgain when after somebody had a GPU open, which doubles each time up to busyLongest:
	// each try may close the driver for all GPUs of the node. busySays is how long it may take to find that somebody has.
	again       = 2 * time.Second
	busyAgain   = 20 * time.Second
	busyLongest = 5 * time.Minute
	busySays    = 10 * time.Second
)

// reset is a reset that this process has tried.
type reset struct {
	// running is whether it is being tried now, next when it may be again.
	running bool
	next    time.Time
	// begun is when the hardware was touched since running was set; zero: it was not.
	begun time.Time
	// busy is how long it is waited because somebody had a GPU open the last time; zero: nobody had. obstacle is why it could not be made.
	busy     time.Duration
	obstacle string
	// outcome is what became of it, also where that could not be kept.
	outcome *Outcome
}

var (
	// errHeld says that claims hold the GPUs after all, errEntering that some are about to.
	errHeld     = errors.New("claims hold the GPU")
	errEntering = errors.New("claims are still being prepared on the GPU")
	// errWithdrawn says that the order does not stand any more.
	errWithdrawn = errors.New("the reset is not asked for any more")
)

// remedies returns how far the agent is with each remedy whose hold is in force, and begins the resets whose time has come.
func (t *term) remedies(ctx context.Context, k *Keeper) []v1alpha1.AgentRemedy {
	var all []v1alpha1.AgentRemedy
	k.forget(t.word.Holds)
	for _, h := range t.word.Holds {
		if !t.holds(h) {
			continue
		}
		// Counted after the last call ended that was let through: the number only falls from here on, but for validations.
		prepared, err := k.config.Remedies.Prepared(h.GPUs)
		if err != nil {
			t.complain(ctx, "The prepared claims of a GPU cannot be counted, trying again", err)
			continue
		}
		r := v1alpha1.AgentRemedy{ID: h.ID, Prepared: int32(prepared)} //nolint:gosec // a node has a few thousand claims at most
		r.State, r.Message = k.progress(h)
		if r.State == v1alpha1.RemedyHolding && h.Step == v1alpha1.OrderReset {
			if prepared > 0 {
				r.Message = fmt.Sprintf("waiting for %d claims on %s to be taken back", prepared, strings.Join(h.GPUs, ", "))
			} else {
				k.begin(ctx, h)
			}
		}
		all = append(all, r)
	}
	return all
}

// progress returns how far the reset of the remedy is.
func (k *Keeper) progress(h Hold) (v1alpha1.RemedyState, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resets[h.ID]
	if r == nil {
		r = &reset{}
		k.resets[h.ID] = r
	}
	if r.outcome == nil && r.begun.IsZero() {
		k.mu.Unlock()
		// One that cannot be read does not keep the GPU from being held; before it is reset, it is read again.
		outcome, _ := k.config.Gate.outcome(h.ID)
		k.learn(outcome)
		k.mu.Lock()
		r.outcome = cmp.Or(r.outcome, outcome)
	}
	switch {
	case r.outcome != nil:
		return r.outcome.State, r.outcome.Message
	case !r.begun.IsZero() && (r.busy == 0 || time.Since(r.begun) >= busySays):
		return v1alpha1.RemedyResetting, ""
	}
	return v1alpha1.RemedyHolding, r.obstacle
}

// learn passes on that GPUs were reset, whoever did it: the one who did may have ended before it was remembered.
func (k *Keeper) learn(o *Outcome) {
	if o != nil && o.State == v1alpha1.RemedyReset && !o.At.IsZero() {
		k.config.Remedies.WasReset(o.GPUs, o.At)
	}
}

// forget drops the resets of remedies that are gone, unless they are still at work.
func (k *Keeper) forget(holds []Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := map[string]bool{}
	for _, h := range holds {
		current[h.ID] = true
	}
	for id, r := range k.resets {
		if !current[id] && !r.running {
			delete(k.resets, id)
		}
	}
}

// begin has the GPUs of the hold reset in the background, unless that is being done or was tried just now.
func (k *Keeper) begin(ctx context.Context, h Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resets[h.ID]
	if r.running || time.Now().Before(r.next) {
		return
	}
	r.running = true
	k.running.Go(func() {
		limited, cancel := context.WithTimeout(ctx, lockPatience)
		defer cancel()
		err := k.config.Remedies.Exclusive(limited, h.GPUs, "the reset of "+h.GPU, func(context.Context) error {
			return k.reset(ctx, h, r)
		})
		k.note(func() {
			r.running, r.begun, r.busy = false, time.Time{}, r.pause(err)
			r.next = time.Now().Add(max(r.busy, again))
			if err != nil && ctx.Err() == nil {
				r.obstacle = err.Error()
			}
		})
		k.stir()
	})
}

// reset resets the GPUs and keeps what became of it. It is called with the GPUs' locks held: whoever did it before has kept that.
func (k *Keeper) reset(ctx context.Context, h Hold, r *reset) error {
	if err := ctx.Err(); err != nil {
		return err // another agent leads by now
	}
	before, err := k.config.Gate.outcome(h.ID)
	if err != nil || before != nil {
		return err
	}
	if err := k.free(h); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Resetting", "gpus", h.GPUs, "remedy", h.ID, "reason", h.Reason)
	// What was begun comes to its end: a reset that is cut off leaves a GPU that nobody knows anything of.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetLimit)
	defer cancel()
	at, err := k.config.Remedies.Resetter.Reset(limited, h.GPUs, func() {
		k.note(func() { r.begun = time.Now() })
		k.stir()
	})
	if errors.Is(err, gpu.ErrBusy) {
		return err // nothing was done to the GPU, so nothing has failed: it stays held, and whoever ordered this decides how long
	}
	outcome := Outcome{ID: h.ID, State: v1alpha1.RemedyReset, GPUs: h.GPUs, At: at}
	if err != nil {
		outcome = Outcome{ID: h.ID, State: v1alpha1.RemedyFailed, Message: err.Error()}
	}
	klog.FromContext(ctx).Info("The reset is over", "gpus", h.GPUs, "remedy", h.ID, "state", outcome.State, "reason", outcome.Message)
	kept := k.config.Gate.conclude(outcome)
	k.learn(&outcome)
	k.note(func() { r.outcome = &outcome })
	return kept
}

// free returns why the GPUs of the hold may not be reset, nil when they may. It is called with the GPUs' locks held: the order may have been
// withdrawn while they were waited for, and claims let in.
func (k *Keeper) free(h Hold) error {
	word, err := k.config.Gate.Word()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(word.Holds, func(now Hold) bool { return now.Step == v1alpha1.OrderReset && now.same(h) }) {
		return errWithdrawn
	}
	// The word lets nobody in: those who are still on their way passed before it, and have no record yet.
	if quiet, err := k.config.Gate.quiet(h.GPUs...); err != nil || !quiet {
		return cmp.Or(err, errEntering)
	}
	prepared, err := k.config.Remedies.Prepared(h.GPUs)
	if err == nil && prepared > 0 {
		err = fmt.Errorf("%d of them: %w", prepared, errHeld)
	}
	return err
}

// pause returns how long it is waited for who had a GPU open when a try ended; zero: nobody had.
func (r *reset) pause(err error) time.Duration {
	if !errors.Is(err, gpu.ErrBusy) {
		return 0
	}
	return min(max(2*r.busy, busyAgain), busyLongest)
}

// note changes what is known of resets.
func (k *Keeper) note(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}
