package exporter

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCachedQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		takes := time.Second
		l := &cachedQuery[int32]{maxAge: time.Second, timeout: 3 * time.Second, query: func() (int32, error) {
			<-time.After(takes)
			return calls.Add(1), nil
		}}
		check := func(what string, want int32, wantErr error, wait time.Duration) {
			t.Helper()
			begin := time.Now()
			got := l.get()
			if got.value != want || !errors.Is(got.err, wantErr) || time.Since(begin) != wait {
				t.Errorf("%s: %d, %v after %v, want %d, %v after %v", what, got.value, got.err, time.Since(begin), want, wantErr, wait)
			}
		}
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { check("several at once", 1, nil, time.Second) })
		}
		group.Wait()
		check("while it is good", 1, nil, 0)
		<-time.After(time.Second)
		takes = time.Hour
		check("one that hangs", 1, errTimeout, 3*time.Second)
		check("one that was waited for already", 1, errTimeout, 0)
		<-time.After(takes - 3*time.Second)
		synctest.Wait()
		check("when it returned late, without a query in between", 2, nil, 0)
	})
}
