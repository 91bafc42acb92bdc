package lifecycle

import (
	"strings"
	"time"
)

// killedAtEveryWrite starts the installer, which does not run, and ends it after its next write, again and again, until it is over; it does not run then.
// It returns how many evictions were asked for.
func (w *world) killedAtEveryWrite(over func() bool) (evictions int) {
	w.Helper()
	kills := 0
	for ; !over(); kills++ {
		if kills == 200 {
			w.Fatalf("it does not come to an end\n%s", w.report())
		}
		died := make(chan struct{}, 1)
		w.requests.mutex.Lock()
		w.requests.after = func(r request) {
			if strings.HasSuffix(r.path, "/eviction") {
				evictions++
			}
			if r.writes() {
				select {
				case died <- struct{}{}:
				default:
				}
			}
		}
		w.requests.mutex.Unlock()
		w.start()
		w.awaitDeathOrRest(died)
		w.stop()
	}
	w.Logf("killed %d times", kills)
	return evictions
}

// awaitDeathOrRest waits until something was written, or until nothing is asked any more.
func (w *world) awaitDeathOrRest(died <-chan struct{}) {
	w.Helper()
	select {
	case <-died:
	case <-time.After(2 * calm):
	case <-w.Context().Done():
	}
}
