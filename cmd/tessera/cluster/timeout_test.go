package cluster

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// responder is a RoundTripper that responds after a time.
type responder struct {
	delay time.Duration
	last  *http.Request
}

func (f *responder) RoundTrip(request *http.Request) (*http.Response, error) {
	f.last = request
	select {
	case <-request.Context().Done():
		return nil, request.Context().Err()
	case <-time.After(f.delay):
		return &http.Response{StatusCode: http.StatusOK}, nil
	}
}

func get(t *testing.T, rt http.RoundTripper) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://10.0.0.1/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.RoundTrip(request) //nolint:bodyclose // has no body
	return err
}

// TestFirstResponseIsLimited sends a request to a server that does not respond.
func TestFirstResponseIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := get(t, limitFirstResponse()(&responder{delay: time.Hour}))
		if err == nil || time.Since(start) > 10*time.Second {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
		err = ExplainError("connect to the API server", &url.Error{Op: "Get", URL: "https://10.0.0.1/version", Err: err})
		for _, want := range []string{"no response from 10.0.0.1 within 8s", "The API server is not reachable"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		}
	})
}

// TestLaterResponsesAreNotLimited reads a body for a long time and makes a slow request after the first response.
func TestLaterResponsesAreNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &responder{delay: time.Second}
		limit := limitFirstResponse()
		limited := limit(next)
		if err := get(t, limited); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := next.last.Context().Err(); err != nil {
			t.Errorf("reading the body: %v", err)
		}
		next.delay = time.Minute
		if err := get(t, limited); err != nil {
			t.Errorf("slow response: %v", err)
		}
		if err := get(t, limit(&responder{delay: time.Minute})); err != nil {
			t.Errorf("slow response for another client: %v", err)
		}
	})
}
