package controller

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/controller/policy"
)

// recorder is a manager that records what is added to it. It is never started, and needs no API server.
type recorder struct {
	ctrl.Manager
	added []manager.Runnable
	// checks are the names of the checks of liveness, in order.
	checks []string
}

func (r *recorder) AddHealthzCheck(name string, check healthz.Checker) error {
	r.checks = append(r.checks, name)
	return r.Manager.AddHealthzCheck(name, check)
}

func (r *recorder) Add(added manager.Runnable) error {
	r.added = append(r.added, added)
	return r.Manager.Add(added)
}

// controllers returns the names of the controllers that were added, sorted.
func (r *recorder) controllers() []string {
	var names []string
	for _, added := range r.added {
		names = append(names, reflect.ValueOf(added).Elem().FieldByName("Name").String())
	}
	slices.Sort(names)
	return names
}

// mapper maps the kinds of the scheme. err, if it is not nil, is returned for ServiceMonitors, which a cluster may not serve.
type mapper struct {
	meta.RESTMapper
	err error
}

func (m mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if kind != policy.MonitorKind.GroupKind() {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	if m.err != nil {
		return nil, m.err
	}
	return &meta.RESTMapping{GroupVersionKind: policy.MonitorKind}, nil
}

// newManager returns a manager of a cluster that returns err for the mapping of ServiceMonitors.
func newManager(t *testing.T, err error) *recorder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	options := managerOptions(t.Context(), Config{Namespace: "own", MetricsAddress: "0"}, scheme)
	options.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		return mapper{testrestmapper.TestOnlyStaticRESTMapper(scheme), err}, nil
	}
	mgr, failed := ctrl.NewManager(&rest.Config{Host: unreachable}, options)
	if failed != nil {
		t.Fatal(failed)
	}
	return &recorder{Manager: mgr}
}

// unreachable is an address on which nothing listens.
const unreachable = "http://127.0.0.1:1"

func noMatch() error { return &meta.NoKindMatchError{GroupKind: policy.MonitorKind.GroupKind()} }

// Both reconcilers are registered, whether or not the cluster serves ServiceMonitors, and reconcile only with the lease: of several installers, one writes.
func TestSetUpRegistersTheReconcilers(t *testing.T) {
	for name, err := range map[string]error{"with ServiceMonitors": nil, "without ServiceMonitors": noMatch()} {
		mgr, registry := newManager(t, err), prometheus.NewRegistry()
		if err := setUp(t.Context(), mgr, Config{Namespace: "own", Registry: registry}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]string{"node", "policy"}, mgr.controllers()); diff != "" {
			t.Errorf("%s: controllers (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"nodes", "policy"}, mgr.checks); diff != "" {
			t.Errorf("%s: checks of liveness (-want +got):\n%s", name, diff)
		}
		for _, added := range mgr.added {
			if elected, ok := added.(manager.LeaderElectionRunnable); !ok || !elected.NeedLeaderElection() {
				t.Errorf("%s: %T runs without the lease", name, added)
			}
		}
		if err := registry.Register(prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tessera_installer_time_to_ready_seconds"})); err == nil {
			t.Errorf("%s: the installer's metrics are not in the registry", name)
		}
	}
}

func TestServesMonitors(t *testing.T) {
	failed := errors.New("no answer")
	for name, test := range map[string]struct {
		err, wantErr error
		want         bool
	}{
		"served":     {want: true},
		"not served": {err: noMatch()},
		// A cluster that serves them and is not reached would lose its ServiceMonitors if they counted as not served.
		"not known": {err: failed, wantErr: failed},
	} {
		got, err := servesMonitors(newManager(t, test.err))
		if got != test.want || !errors.Is(err, test.wantErr) {
			t.Errorf("%s: %t, %v, want %t, %v", name, got, err, test.want, test.wantErr)
		}
	}
}

// If a part of the setup fails, no reconciler runs: each depends on the indexes and on the metrics.
func TestSetUpFails(t *testing.T) {
	failed := errors.New("no answer")
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "tessera_installer_nodes"}))
	indexed := newManager(t, nil)
	if err := setUp(t.Context(), indexed, Config{Registry: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	indexed.added = nil
	for name, test := range map[string]struct {
		mgr      *recorder
		registry *prometheus.Registry
		want     string
	}{
		"a metric's name is taken":             {newManager(t, nil), taken, "tessera_installer_nodes"},
		"an index exists":                      {indexed, prometheus.NewRegistry(), "index"},
		"the cluster's kinds are not readable": {newManager(t, failed), prometheus.NewRegistry(), failed.Error()},
	} {
		err := setUp(t.Context(), test.mgr, Config{Namespace: "own", Registry: test.registry})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.want)
		}
		if names := test.mgr.controllers(); len(names) > 0 {
			t.Errorf("%s: the controllers %q are registered", name, names)
		}
	}
}

// An installer that cannot start ends, so that its pod is restarted. The client configuration is the caller's, and is not changed.
func TestRunReturnsErrorsOfTheStart(t *testing.T) {
	for name, access := range map[string]*rest.Config{
		"the API server does not answer": {Host: unreachable},
		"the CA is not readable":         {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}},
	} {
		before := rest.CopyConfig(access)
		err := Run(t.Context(), Config{Access: access, Namespace: "own", MetricsAddress: "0", Registry: prometheus.NewRegistry()})
		if err == nil || !strings.HasPrefix(err.Error(), "start installer: ") {
			t.Errorf("%s: %v, want an error of the start", name, err)
		}
		if access.QPS != before.QPS || access.Burst != before.Burst || access.UserAgent != before.UserAgent {
			t.Errorf("%s: the caller's configuration is changed to %v", name, access)
		}
	}
}
