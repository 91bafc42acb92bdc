package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// firstResponseTimeout is the time that an API server has for its first response. Every verb begins with a request for a small document.
const firstResponseTimeout = 8 * time.Second

// firstResponse is a transport that limits the time until the first response. Later requests, such as lists of many objects, take as long as they need,
// up to --request-timeout.
type firstResponse struct {
	next      http.RoundTripper
	timeout   time.Duration
	responded atomic.Bool
}

// limitFirstResponse returns the transport with the limit. Credential plugins, which may wait for the user, run outside of it.
func limitFirstResponse(next http.RoundTripper) http.RoundTripper {
	return &firstResponse{next: next, timeout: firstResponseTimeout}
}

// RoundTrip implements http.RoundTripper.
func (f *firstResponse) RoundTrip(request *http.Request) (*http.Response, error) {
	if f.responded.Load() {
		return f.next.RoundTrip(request)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	expired := fmt.Errorf("no response from %s within %s", request.URL.Host, f.timeout)
	timer := time.AfterFunc(f.timeout, func() { cancel(expired) })
	response, err := f.next.RoundTrip(request.WithContext(ctx))
	if !timer.Stop() && err != nil {
		return nil, expired
	}
	if err == nil {
		f.responded.Store(true)
	}
	return response, err
}

// WrappedRoundTripper returns the transport below.
func (f *firstResponse) WrappedRoundTripper() http.RoundTripper { return f.next }
