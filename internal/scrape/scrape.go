// Package scrape serves metrics to callers that may read them: over TLS, with a token that the API server reviews.
package scrape

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// Path is the URL path of metrics, and the non-resource URL of the right to get them.
const Path = "/metrics"

const (
	// allowedFor and deniedFor are how long decisions are cached. A scraper causes one TokenReview and one SubjectAccessReview in allowedFor, however often it
	// scrapes; a token or a right that is withdrawn works until then.
	allowedFor = 10 * time.Minute
	deniedFor  = 30 * time.Second
	// maxDecisions is the number of tokens whose decisions are cached, of those that are admitted and of the others.
	maxDecisions = 64
	// reviewsPerSecond and reviewBurst limit the tokens that are reviewed: a client that reaches the endpoint can send new ones without end.
	reviewsPerSecond = 1
	reviewBurst      = 10
	// reviewTimeout limits the requests to the API server for one scrape.
	reviewTimeout = 10 * time.Second
)

// Require returns a handler that passes requests with a bearer token to next if the API server authenticates the token and its user may get the
// non-resource URL /metrics. Otherwise it responds with 401 or 403, with 503 if the API server does not respond, and with 429 to too many unknown tokens.
// It is safe for concurrent use.
func Require(client kubernetes.Interface, next http.Handler) http.Handler {
	return &guard{
		client: client, next: next, admitted: cache.NewLRUExpireCache(maxDecisions), refused: cache.NewLRUExpireCache(maxDecisions),
		reviews: flowcontrol.NewTokenBucketRateLimiter(reviewsPerSecond, reviewBurst),
	}
}

type guard struct {
	client kubernetes.Interface
	next   http.Handler
	// admitted and refused have the HTTP statuses for tokens, by the tokens' SHA-256. They are apart, so that unknown tokens do not displace admitted ones.
	admitted, refused *cache.LRUExpireCache
	// reviews limits the tokens that are reviewed.
	reviews flowcontrol.RateLimiter
}

// explanations are the bodies of refusals.
var explanations = map[int]string{
	http.StatusUnauthorized:       "metrics need the bearer token of an account that may get the non-resource URL " + Path,
	http.StatusForbidden:          "the account may not get the non-resource URL " + Path + ": bind the ClusterRole tessera-metrics-reader to it",
	http.StatusTooManyRequests:    "too many tokens are unknown: retry in some seconds",
	http.StatusServiceUnavailable: "the API server could not review the token; the log has the cause",
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusUnauthorized
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token != "" {
		var err error
		if status, err = g.decide(r.Context(), token); err != nil {
			klog.FromContext(r.Context()).Error(err, "A request for metrics is refused")
			status = http.StatusServiceUnavailable
		}
	}
	if status != http.StatusOK {
		http.Error(w, explanations[status], status)
		return
	}
	g.next.ServeHTTP(w, r)
}

// decide returns the HTTP status for a token.
func (g *guard) decide(ctx context.Context, token string) (int, error) {
	key := sha256.Sum256([]byte(token))
	for _, decisions := range []*cache.LRUExpireCache{g.admitted, g.refused} {
		if status, ok := decisions.Get(key); ok {
			return status.(int), nil //nolint:forcetypeassert // Add below
		}
	}
	if !g.reviews.TryAccept() {
		return http.StatusTooManyRequests, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := g.review(ctx, token)
	if err != nil {
		return 0, err
	}
	if status == http.StatusOK {
		g.admitted.Add(key, status, allowedFor)
	} else {
		g.refused.Add(key, status, deniedFor)
	}
	return status, nil
}

// review requests the decision from the API server.
func (g *guard) review(ctx context.Context, token string) (int, error) {
	identity, err := g.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the token: %w", err)
	}
	if !identity.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := identity.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: Path, Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// SelfSigned returns a TLS configuration with a new certificate for the host, which it signs itself. It is valid for a year; clients cannot verify it.
// HTTP/2 is off, whose streams a client can open and reset without end.
func SelfSigned(host string) (*tls.Config, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create the certificate of the metrics endpoint: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate of the metrics endpoint: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
