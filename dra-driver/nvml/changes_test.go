package nvml

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestChangedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		start := time.Now()
		changed := func(when string, at time.Time, want bool) {
			t.Helper()
			if got := s.ChangedSince(at); got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		changed("at first", start, false)
		first, second := s.changes.begin(), s.changes.begin()
		time.Sleep(time.Second)
		changed("during two", time.Now(), true)
		first()
		changed("during one", time.Now(), true)
		second()
		time.Sleep(time.Second)
		changed("after both", start, true)
		changed("since their end", time.Now(), false)
		third := s.changes.begin()
		time.Sleep(maxChange)
		changed("when one hangs", time.Now(), false)
		third()
		changed("when it returns at last", start, true)
	})
}
