package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/transport"
)

// firstResponseTimeout is the time that an API server has for its first response. Every verb begins with a request for a small document.
const firstResponseTimeout = 8 * time.Second

// firstResponse is a transport that limits the time until the first response. Later requests, such as lists of many objects, take as long as they need,
// up to --request-timeout.
type firstResponse struct {
	next    http.RoundTripper
	timeout time.Duration
	// responded is that of all transports to the API server.
	responded *atomic.Bool
}

// limitFirstResponse returns a function that adds the limit to the transports of an API server: the first response on any of them ends it. Credential
// plugins, which may wait for the user, run outside of it.
func limitFirstResponse() transport.WrapperFunc {
	var responded atomic.Bool
	return func(next http.RoundTripper) http.RoundTripper {
		return &firstResponse{next: next, timeout: firstResponseTimeout, responded: &responded}
	}
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
