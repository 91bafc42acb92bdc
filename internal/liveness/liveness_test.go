package liveness

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCheck(t *testing.T) {
	const limit, period = 2 * time.Minute, time.Second // of checks
	for name, test := range map[string]struct {
		calls func(w *Work)
		hangs bool
	}{
		"no work":                          {func(*Work) {}, false},
		"many calls that end":              {func(w *Work) { repeat(w, 100, time.Minute) }, false},
		"a call shorter than the limit":    {func(w *Work) { w.Begin(); <-time.After(limit - time.Second) }, false},
		"a call longer than the limit":     {func(w *Work) { w.Begin(); <-time.After(limit + 2*period) }, true},
		"a long call that has ended":       {func(w *Work) { repeat(w, 1, time.Hour) }, false},
		"a call after a long pause":        {func(w *Work) { repeat(w, 1, 0); <-time.After(time.Hour); w.Begin() }, false},
		"one of many calls that never end": {func(w *Work) { w.Begin(); repeat(w, 100, time.Second); <-time.After(time.Minute) }, true},
		"calls that overlap":               {overlap, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &Work{Name: "the work", Limit: limit}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for ctx.Err() == nil {
					_ = w.Check()
					<-time.After(period)
				}
			}()
			test.calls(w)
			err := w.CheckHTTP(nil)
			if (err != nil) != test.hangs || err != nil && !strings.Contains(err.Error(), "the work hangs: a call has not ended for 2m") {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			<-time.After(period)
		})
	}
}

// overlap makes calls of a minute each, of which at least one is in progress at any time for an hour.
func overlap(w *Work) {
	end := w.Begin()
	for range 120 {
		<-time.After(30 * time.Second)
		next := w.Begin()
		<-time.After(30 * time.Second)
		end()
		end = next
	}
}

// repeat makes calls one after another.
func repeat(w *Work, calls int, each time.Duration) {
	for range calls {
		end := w.Begin()
		<-time.After(each)
		end()
	}
}

// A lock that is not released is detected; a lock that is held for half a minute, as during a call of NVML, is not.
func TestHeldLock(t *testing.T) {
	for held, hangs := range map[time.Duration]bool{30 * time.Second: false, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			w := &Work{Name: "the lock", Limit: 2 * time.Minute}
			lock := make(chan struct{}, 1) // a mutex, on which time passes in the bubble
			go func() {
				for ctx.Err() == nil {
					lock <- struct{}{}
					<-time.After(held)
					<-lock
					<-time.After(time.Second)
				}
			}()
			go func() {
				_ = w.Repeat(ctx, func(context.Context) time.Duration {
					lock <- struct{}{}
					<-lock
					return 10 * time.Second
				})
			}()
			begin := time.Now()
			err := w.Await(ctx)
			if (err != nil) != hangs {
				t.Errorf("held for %v: %v", held, err)
			}
			if hangs && time.Since(begin) > 3*time.Minute {
				t.Errorf("detected after %v", time.Since(begin))
			}
			cancel()
			<-time.After(2 * time.Hour) // the goroutines end
		})
	}
}

// A call is watched where thousands of calls are made by each scheduling cycle.
func BenchmarkBegin(b *testing.B) {
	w := &Work{Limit: time.Minute}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Begin()()
		}
	})
}
