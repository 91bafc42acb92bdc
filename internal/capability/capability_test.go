package capability

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

func TestDetect(t *testing.T) {
	taintRulesInBeta := capabilitytest.Kubernetes136()
	taintRulesInBeta["resource.k8s.io/v1beta2"] = []string{"devicetaintrules"}
	for name, test := range map[string]struct {
		serves capabilitytest.Resources
		want   Server
		fails  string
	}{
		"1.37":                              {serves: capabilitytest.Kubernetes137(), want: Server{TaintRules: true}},
		"1.36":                              {serves: capabilitytest.Kubernetes136()},
		"1.36 with DeviceTaintRules (beta)": {serves: taintRulesInBeta},
		"1.34": {
			serves: capabilitytest.Kubernetes134(), fails: "mutatingadmissionpolicies in admissionregistration.k8s.io/v1: Tessera requires Kubernetes 1.36 or newer",
		},
		"1.33": {serves: nil, fails: "resourceslices in resource.k8s.io/v1: Tessera requires Kubernetes 1.36 or newer"},
	} {
		client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: capabilitytest.Serve(t, test.serves)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Detect(client)
		if got != test.want || (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %+v, %v; want %+v, %q", name, got, err, test.want, test.fails)
		}
		if errors.Is(err, ErrTooOld) != (test.fails != "") {
			t.Errorf("%s: %v; want ErrTooOld %t", name, err, test.fails != "")
		}
	}
}

// An API server that does not respond is not an old one.
func TestDetectWithoutResponse(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Detect(client); err == nil || errors.Is(err, ErrTooOld) {
		t.Errorf("%v; want the error of the request", err)
	}
}

func TestReduced(t *testing.T) {
	if s := (Server{TaintRules: true}); !s.Scheduler() || len(s.Reduced()) > 0 {
		t.Errorf("with DeviceTaintRules: scheduler %t, reduced %q", s.Scheduler(), s.Reduced())
	}
	s := Server{}
	states := func(text string) bool {
		return slices.ContainsFunc(s.Reduced(), func(reduced string) bool { return strings.Contains(reduced, text) })
	}
	if s.Scheduler() || !states("must not be newer than its API server") || !states("maintenance") {
		t.Errorf("without DeviceTaintRules: scheduler %t, reduced %q", s.Scheduler(), s.Reduced())
	}
	s = Server{TaintRules: true, NoScheduler: "the API server had version v1.39.1"}
	if s.Scheduler() || !states("at most one minor version older (the API server had version v1.39.1): kube-scheduler allocates") || states("maintenance") {
		t.Errorf("without an image: scheduler %t, reduced %q", s.Scheduler(), s.Reduced())
	}
	// On a server without DeviceTaintRules, the images do not matter.
	if s.TaintRules = false; !slices.Equal(s.Reduced(), Server{}.Reduced()) {
		t.Errorf("without DeviceTaintRules and without an image: reduced %q", s.Reduced())
	}
}
