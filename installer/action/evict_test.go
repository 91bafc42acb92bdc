package action

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A refused eviction is returned with the API server's message and does not stop the evictions of other pods.
func TestEvictPodsReturnsRefusals(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget b needs 1 healthy pods"}}
	tests := map[string]struct {
		answer *apierrors.StatusError
		// refused is the reason that is returned, failed whether EvictPods returns an error instead.
		refused string
		failed  bool
	}{
		"gone":                          {answer: apierrors.NewNotFound(pods, "p")},
		"another pod of the same name":  {answer: apierrors.NewConflict(pods, "p", nil)},
		"a budget":                      {answer: budget, refused: "The disruption budget b needs 1 healthy pods"},
		"two budgets":                   {answer: internal("This pod has more than one PodDisruptionBudget"), refused: "This pod has more than one PodDisruptionBudget"},
		"a webhook that denies it":      {answer: apierrors.NewForbidden(pods, "p", errDenied{}), refused: `pods "p" is forbidden: not on weekdays`},
		"a webhook that finds it wrong": {answer: apierrors.NewBadRequest("not like this"), refused: "not like this"},
		"a pod that is not valid":       {answer: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), refused: `Pod "p" is invalid`},
		"a server that is too slow":     {answer: apierrors.NewTimeoutError("the server was too slow", 0), failed: true},
		"a server that is not there":    {answer: apierrors.NewServiceUnavailable("starts"), failed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var evicted []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if pod := strings.Split(r.URL.Path, "/")[6]; pod != "p" {
					evicted = append(evicted, pod)
					_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
					return
				}
				status := test.answer.Status()
				status.APIVersion, status.Kind = "v1", "Status"
				w.WriteHeader(int(status.Code))
				_ = json.NewEncoder(w).Encode(status)
			}))
			defer server.Close()
			refs := []PodRef{{Namespace: "demo", Name: "p", UID: "1"}, {Namespace: "demo", Name: "q", UID: "2"}}
			refused, err := Cluster{Live: newPodClient(t, server.URL)}.EvictPods(t.Context(), refs)
			if (err != nil) != test.failed {
				t.Fatalf("got error %v", err)
			}
			var want []RefusedEviction
			if test.refused != "" {
				want = []RefusedEviction{{PodRef: refs[0], Reason: test.refused}}
			}
			if diff := cmp.Diff(want, refused); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"q"}, evicted); diff != "" {
				t.Error("evicted:", diff)
			}
		})
	}
}

type errDenied struct{}

func (errDenied) Error() string { return "not on weekdays" }

func internal(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: message,
	}}
}

// newPodClient returns a client of a server that serves pods only.
func newPodClient(t *testing.T, url string) client.Client {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
