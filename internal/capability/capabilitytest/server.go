// Package capabilitytest serves the discovery documents of API servers of several versions of Kubernetes, for tests.
package capabilitytest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resources are the names of resources by API version.
type Resources map[string][]string

// Kubernetes134 returns what this version serves with default settings, as far as Tessera depends on it.
func Kubernetes134() Resources {
	return Resources{"resource.k8s.io/v1": {"resourceclaims", "resourceslices"}, "admissionregistration.k8s.io/v1": {"validatingadmissionpolicies"}}
}

// Kubernetes136 returns the same for its version.
func Kubernetes136() Resources {
	return Resources{
		"resource.k8s.io/v1":              {"deviceclasses", "resourceclaims", "resourceslices"},
		"admissionregistration.k8s.io/v1": {"mutatingadmissionpolicies", "validatingadmissionpolicies"},
	}
}

// Kubernetes137 returns the same for its version.
func Kubernetes137() Resources {
	r := Kubernetes136()
	r["resource.k8s.io/v1"] = append(r["resource.k8s.io/v1"], "devicetaintrules")
	return r
}

// Lists returns the resources as an API server lists them.
func (r Resources) Lists() []*metav1.APIResourceList {
	var lists []*metav1.APIResourceList
	for version, names := range r {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		lists = append(lists, list)
	}
	return lists
}

// Serve starts an API server that has discovery documents only, and returns its URL. It ends with the test.
func Serve(t testing.TB, r Resources) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, list := range r.Lists() {
		mux.HandleFunc("/apis/"+list.GroupVersion, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}
