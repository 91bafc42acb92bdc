package scrape

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// reviewer is an API server with the users prometheus, who may read metrics, and tenant, whose tokens are their names.
type reviewer struct {
	tokens, accesses int
	down             bool
}

func (s *reviewer) client() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.tokens++
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if name := review.Spec.Token; name == "prometheus" || name == "tenant" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: name, UID: "uid", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}}
		}
		if s.down {
			return true, nil, errors.New("no connection")
		}
		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.accesses++
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = cmp.Equal(review.Spec, authorizationv1.SubjectAccessReviewSpec{
			User: "prometheus", UID: "uid", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		})
		return true, review, nil
	})
	return client
}

// get returns the status of the response to a request with the header, and whether it has metrics.
func get(h http.Handler, authorization string) (int, bool) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String() == "metrics"
}

var metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })

func TestRequire(t *testing.T) {
	for authorization, want := range map[string]int{
		"": 401, "Bearer ": 401, "Basic prometheus": 401, "prometheus": 401, "Bearer other": 401, "Bearer tenant": 403, "Bearer prometheus": 200,
	} {
		h := Require((&reviewer{}).client(), metrics)
		for range 2 { // the second decision is cached
			if status, served := get(h, authorization); status != want || served != (want == 200) {
				t.Errorf("%q: %d, metrics %t, want %d", authorization, status, served, want)
			}
		}
	}
}

// A scraper costs two requests in allowedFor. A withdrawn right ends after it, and a new one works after deniedFor.
func TestDecisionsAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reviewer{}
		h := Require(s.client(), metrics)
		for range 4 * int(allowedFor/time.Minute) {
			get(h, "Bearer prometheus")
			<-time.After(15 * time.Second)
		}
		if s.tokens != 1 || s.accesses != 1 {
			t.Errorf("%d TokenReviews and %d SubjectAccessReviews in %v", s.tokens, s.accesses, allowedFor)
		}
		<-time.After(time.Second)
		get(h, "Bearer prometheus")
		get(h, "Bearer tenant")
		get(h, "Bearer tenant")
		if s.tokens != 3 || s.accesses != 3 {
			t.Errorf("%d TokenReviews and %d SubjectAccessReviews for two tokens and an expired decision", s.tokens, s.accesses)
		}
		<-time.After(deniedFor + time.Second)
		get(h, "Bearer tenant")
		if s.tokens != 4 {
			t.Errorf("%d TokenReviews, want one more after %v", s.tokens, deniedFor)
		}
	})
}

// Unknown tokens without end cost the API server little, and displace no decision that admits.
func TestUnknownTokensAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reviewer{}
		h := Require(s.client(), metrics)
		get(h, "Bearer prometheus")
		refused := map[int]int{}
		for i := range 1000 {
			status, _ := get(h, fmt.Sprint("Bearer ", i))
			refused[status]++
		}
		if s.tokens > reviewBurst || refused[401] != s.tokens-1 || refused[429] != 1000-refused[401] {
			t.Errorf("%d reviews, responses %v, want at most %d reviews", s.tokens, refused, reviewBurst)
		}
		if status, _ := get(h, "Bearer prometheus"); status != 200 || s.accesses != 1 {
			t.Errorf("an admitted token: %d after %d reviews of access", status, s.accesses)
		}
		for range 2 * maxDecisions { // as many as a cache has
			<-time.After(time.Second / reviewsPerSecond)
			get(h, fmt.Sprint("Bearer ", time.Now()))
		}
		if status, _ := get(h, "Bearer prometheus"); status != 200 || s.accesses != 1 {
			t.Errorf("an admitted token after others: %d after %d reviews of access", status, s.accesses)
		}
		<-time.After(reviewBurst * time.Second)
		if status, _ := get(h, "Bearer tenant"); status != 403 {
			t.Errorf("a token after a pause: %d", status)
		}
	})
}

// An API server that does not respond admits no client, and its failures are not cached.
func TestFailuresAreNotCached(t *testing.T) {
	s := &reviewer{down: true}
	h := Require(s.client(), metrics)
	if status, served := get(h, "Bearer prometheus"); status != 503 || served {
		t.Errorf("without the API server: %d, metrics %t", status, served)
	}
	s.down = false
	if status, _ := get(h, "Bearer prometheus"); status != 200 {
		t.Errorf("with it again: %d", status)
	}
}
