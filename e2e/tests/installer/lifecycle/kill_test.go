package lifecycle

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/tessera-gpu/tessera/installer/controller"
)

// life is the life of an installer that may write once. At most one write is under way at a time, and completed writes have been counted: every granted
// eviction is in the count.
type life struct {
	mutex   sync.Mutex
	over    bool
	ended   chan struct{}
	evicted int
}

// errOver is the error of an installer that must not write any more.
var errOver = errors.New("the installer was killed")

// wrap ends the life when something was written.
func (l *life) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		made := request{q.Method, q.URL.Path}
		if !made.writes() {
			return next.RoundTrip(q)
		}
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if l.over {
			return nil, errOver
		}
		answer, err := next.RoundTrip(q)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(made.path, "/eviction") {
			l.evicted++
		}
		if answer.StatusCode < http.StatusMultipleChoices {
			l.over = true
			close(l.ended)
		}
		return answer, nil
	})
}

// end ends the life if it is not over yet, and returns the number of evictions requested in it.
func (l *life) end() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.over = true
	return l.evicted
}

// killedAtEveryWrite starts the installer, which does not run, and ends it after its next write, or when it comes to rest, repeatedly, until the process is
// over; the installer does not run then. It returns the number of requested evictions.
func (w *world) killedAtEveryWrite(over func() bool) (evictions int) {
	w.Helper()
	kills := 0
	for ; !over(); kills++ {
		if kills == 200 {
			w.Fatalf("it does not come to an end\n%s", w.report())
		}
		l := &life{ended: make(chan struct{})}
		w.start(func(c *controller.Config) { c.Access.Wrap(l.wrap) })
		w.rest(l.ended)
		evictions += l.end()
		w.stop()
	}
	w.Logf("killed %d times", kills)
	return evictions
}
