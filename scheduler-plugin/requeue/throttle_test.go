package requeue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// clock is a time that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time                 { return c.at }
func (c *clock) advance(d time.Duration)        { c.at = c.at.Add(d) }
func digest(i int) func() string                { return func() string { return fmt.Sprint(i) } }
func newClock() *clock                          { return &clock{at: time.Unix(1_000_000, 0)} }
func limited(part float64) (took time.Duration) { return time.Duration(part * float64(limit)) }

const limit = 200 * time.Millisecond

// TestThrottleBoundsTheShareOfComplexPods lets pods take all that they may, for ten minutes. No pod is tried before its wait is
// over, and no two at the same time: the others would be refused, which takes time too.
func TestThrottleBoundsTheShareOfComplexPods(t *testing.T) {
	t.Parallel()
	for _, pods := range []int{1, 100} {
		c := newClock()
		throttle := requeue.NewThrottle(limit, c.now)
		var total time.Duration
		start, refused := c.now(), 0
		next := make([]time.Time, pods)
		for c.now().Sub(start) < 10*time.Minute {
			for pod := range pods {
				if next[pod].After(c.now()) {
					continue
				}
				part, wait := throttle.Admit(true, digest(pod))
				if wait > 0 {
					refused++
					next[pod] = c.now().Add(wait)
					continue
				}
				took := limited(part)
				total += took
				c.advance(took)
				throttle.Charge(took)
				next[pod] = c.now().Add(throttle.Reject(digest(pod)(), true))
			}
			c.advance(100 * time.Millisecond)
		}
		if refused > 20*pods {
			t.Errorf("%d pods are refused %d times", pods, refused)
		}
		if share := float64(total) / float64(c.now().Sub(start)); share > 0.11 || total < limit {
			t.Errorf("%d pods take %s, %.0f %% of the time", pods, total, 100*share)
		}
	}
}

// TestThrottleOfManyNewPods lets 100 pods with different requirements take all that they may, one after the other.
func TestThrottleOfManyNewPods(t *testing.T) {
	t.Parallel()
	c := newClock()
	throttle := requeue.NewThrottle(limit, c.now)
	var total time.Duration
	for pod := range 100 {
		part, wait := throttle.Admit(false, digest(pod))
		if wait > 0 {
			t.Fatalf("pod %d waits for %s before its first attempt", pod, wait)
		}
		total += limited(part)
		throttle.Charge(limited(part))
		throttle.Reject(digest(pod)(), false)
	}
	if total > limit {
		t.Errorf("all pods together take %s, want at most %s", total, limit)
	}
}

// TestThrottleOfManyLargePods creates 100 pods with different large requirements, and one whose requirements are not large.
func TestThrottleOfManyLargePods(t *testing.T) {
	t.Parallel()
	c := newClock()
	throttle := requeue.NewThrottle(limit, c.now)
	var waits []time.Duration
	for pod := range 100 {
		part, wait := throttle.Admit(true, digest(pod))
		if pod == 0 {
			if wait > 0 {
				t.Fatalf("the first pod waits for %s", wait)
			}
			throttle.Charge(limited(part))
			wait = throttle.Reject(digest(pod)(), false)
		}
		waits = append(waits, wait)
	}
	for i := 1; i < len(waits); i++ {
		if apart := waits[i] - waits[i-1]; apart < limit/4*10 {
			t.Errorf("pod %d is tried %s after the pod before it, when its attempt is not repaid", i, apart)
		}
	}
	if last := waits[len(waits)-1]; last > time.Minute {
		t.Errorf("the last pod waits for %s", last)
	}
	if _, wait := throttle.Admit(false, digest(1000)); wait > 0 {
		t.Errorf("a pod whose requirements are not large waits for %s", wait)
	}
}

// TestThrottleLimitsTheWaitForATurn lets more pods wait than there are turns in the longest backoff.
func TestThrottleLimitsTheWaitForATurn(t *testing.T) {
	t.Parallel()
	throttle := requeue.NewThrottle(limit, newClock().now)
	throttle.Charge(limit)
	for pod := range 10_000 {
		if _, wait := throttle.Admit(true, digest(pod)); wait <= 0 || wait > 5*time.Minute {
			t.Fatalf("pod %d waits for %s", pod, wait)
		}
	}
}

func TestThrottleBackoff(t *testing.T) {
	t.Parallel()
	c := newClock()
	throttle := requeue.NewThrottle(limit, c.now)
	c.advance(time.Minute)
	for _, test := range []struct {
		progress bool
		want     time.Duration
	}{{false, time.Second}, {false, 2 * time.Second}, {true, 2 * time.Second}, {false, 4 * time.Second}} {
		if got := throttle.Reject("digest", test.progress); got != test.want {
			t.Errorf("the backoff is %s, want %s", got, test.want)
		}
	}
	if _, wait := throttle.Admit(false, func() string { return "digest" }); wait != 4*time.Second {
		t.Errorf("the pod waits for %s, want 4s", wait)
	}
	if part, wait := throttle.Admit(false, func() string { return "other" }); part != 1 || wait != 0 {
		t.Errorf("another pod may take %v after %s, want all at once", part, wait)
	}
	c.advance(4 * time.Second)
	if part, wait := throttle.Admit(false, func() string { return "digest" }); part != 1 || wait != 0 {
		t.Errorf("after the backoff the pod may take %v after %s, want all at once", part, wait)
	}
	for range 20 {
		throttle.Reject("digest", false)
	}
	if got := throttle.Reject("digest", false); got != 5*time.Minute {
		t.Errorf("the longest backoff is %s, want 5m", got)
	}
	throttle.Accept(func() string { return "digest" })
	if _, wait := throttle.Admit(false, func() string { return "digest" }); wait != 0 {
		t.Errorf("accepted requirements wait for %s", wait)
	}
}

func TestTimersActivateOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var activated []time.Duration
		start := time.Now()
		timers := requeue.NewTimers(func(*corev1.Pod) { activated = append(activated, time.Since(start)) })
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("pod")}}
		timers.Set(pod, time.Second)
		timers.Set(pod, 3*time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !timers.Has(pod.UID) {
			t.Error("the pod does not wait before its time is over")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if timers.Has(pod.UID) {
			t.Error("the pod waits after its time is over")
		}
		if len(activated) != 1 || activated[0] != 3*time.Second {
			t.Errorf("activated after %v, want once after 3s", activated)
		}
	})
}
