package lifecycle

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/tessera-gpu/tessera/installer/controller"
)

// life is that of an installer which may write so often. No two writes are under way at a time, and what was answered has been counted: no eviction is
// granted of which nobody knows.
type life struct {
	mutex   sync.Mutex
	left    int
	ended   chan struct{}
	evicted int
}

// errOver is what an installer hears that is not to write any more.
var errOver = errors.New("the installer was killed")

// wrap ends the life when its last write was answered.
func (l *life) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		made := request{q.Method, q.URL.Path}
		if !made.writes() {
			return next.RoundTrip(q)
		}
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if l.left == 0 {
			return nil, errOver
		}
		answer, err := next.RoundTrip(q)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(made.path, "/eviction") {
			l.evicted++
		}
		if l.left--; l.left == 0 {
			close(l.ended)
		}
		return answer, nil
	})
}

// end ends the life if it is not over yet, and returns how many evictions were asked for in it.
func (l *life) end() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.left = 0
	return l.evicted
}

// killedAtEveryWrite starts the installer, which does not run, and ends it after its next write, every other time after the one behind it, or when it comes
// to rest, again and again, until it is over; it does not run then. It returns how many evictions were asked for. Were it always the next write, no proof
// would ever begin: that takes a claim and a pod, and who finds the claim alone removes it.
func (w *world) killedAtEveryWrite(over func() bool) (evictions int) {
	w.Helper()
	kills := 0
	for ; !over(); kills++ {
		if kills == 200 {
			w.Fatalf("it does not come to an end\n%s", w.report())
		}
		l := &life{left: 1 + kills%2, ended: make(chan struct{})}
		w.start(func(c *controller.Config) { c.Access.Wrap(l.wrap) })
		w.rest(l.ended)
		evictions += l.end()
		w.stop()
	}
	w.Logf("killed %d times", kills)
	return evictions
}
