package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/controller/node"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/controller/policy"
	"github.com/tessera-gpu/tessera/installer/controller/remediation"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/controller/trigger"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/capability"
	"github.com/tessera-gpu/tessera/internal/scrape"
)

// Lease is the name of the lease for leader election.
const Lease = "tessera-installer"

// UserAgent identifies the installer to the API server.
const UserAgent = "tessera-installer"

// Config configures an installer.
type Config struct {
	// Access is the configuration of the client.
	Access *rest.Config
	// Namespace is the installer's own.
	Namespace string
	// Images are the images of the release. Schemas are the hashes of its CRDs by their names; nil: they are not compared with those of the cluster.
	Images  render.Images
	Schemas map[string]string
	// Lacks returns the fields of the release that a CRD with another hash does not have; nil: such a CRD counts as lacking some.
	Lacks func(crd *unstructured.Unstructured) ([]string, error)
	// LeaderElect makes the installer wait for the lease before it reconciles, so that of several installers one works at a time.
	LeaderElect bool
	// MetricsAddress is the address on which metrics are served, over TLS to clients that may get them; 0 disables them.
	MetricsAddress string
	// HealthAddress is the address of /healthz, which fails if reconciles hang; 0 disables it.
	HealthAddress string
	// PprofAddress is the address of net/http/pprof; 0 disables it.
	PprofAddress string
	// Registry is where the installer's metrics are registered; nil is controller-runtime's registry.
	Registry prometheus.Registerer
	// server is what the API server serves.
	server capability.Server
}

// The limits of requests to the API server, per second and at once. In a cluster without changes there are none but those for the lease.
const (
	requests = 50
	burst    = 100
)

// Run reconciles until the context ends, or until the lease is lost, which is an error.
func Run(ctx context.Context, c Config) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	access := rest.CopyConfig(c.Access)
	access.QPS, access.Burst, access.UserAgent = requests, burst, UserAgent
	var err error
	if c.server, err = readServer(access, c.Images); err != nil {
		return fmt.Errorf("start installer: %w", err)
	}
	mgr, err := ctrl.NewManager(access, managerOptions(ctx, c, scheme))
	if err != nil {
		return fmt.Errorf("start installer: %w", err)
	}
	if err := setUp(ctx, mgr, c); err != nil {
		return fmt.Errorf("start installer: %w", err)
	}
	return mgr.Start(ctx)
}

// readServer returns what the API server serves, and whether the release has a scheduler for it.
func readServer(access *rest.Config, images render.Images) (capability.Server, error) {
	server, err := capability.Read(access)
	server.NoScheduler = images.NoScheduler
	return server, err
}

// managerOptions returns the options of controller-runtime's manager.
func managerOptions(ctx context.Context, c Config, scheme *runtime.Scheme) ctrl.Options {
	return ctrl.Options{
		Scheme: scheme, Logger: klog.FromContext(ctx), Cache: informers.CacheOptions(c.Namespace, c.server.TaintRules),
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: new(true)}},
		Metrics: metricsserver.Options{BindAddress: c.MetricsAddress, SecureServing: true, FilterProvider: requireToken}, HealthProbeBindAddress: c.HealthAddress,
		PprofBindAddress: c.PprofAddress,
		LeaderElection:   c.LeaderElect, LeaderElectionID: Lease, LeaderElectionNamespace: c.Namespace, LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{SkipNameValidation: new(true), ReconciliationTimeout: trigger.ReconcileTimeout},
	}
}

// requireToken returns the filter of the metrics endpoint, which admits clients that may get metrics.
func requireToken(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	reviews, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return func(_ logr.Logger, next http.Handler) (http.Handler, error) {
		return scrape.Require(reviews, next), nil
	}, nil
}

// setUp adds indexes and reconcilers to the manager.
func setUp(ctx context.Context, mgr ctrl.Manager, c Config) error {
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	if c.Registry == nil {
		c.Registry = ctrlmetrics.Registry
	}
	metrics, err := report.NewMetrics(c.Registry)
	if err != nil {
		return err
	}
	if err := informers.AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	monitors, err := servesMonitors(mgr)
	if err != nil {
		return err
	}
	cluster := action.Cluster{Client: mgr.GetClient(), Live: live, Namespace: c.Namespace, SliceTaints: !c.server.TaintRules}
	catalogs := catalog.NewSource(cluster.Client, c.Namespace, c.Images)
	if !c.server.Scheduler() {
		catalogs.WithoutScheduler()
	}
	events := report.Recorder{Events: mgr.GetEventRecorder(UserAgent)}
	drainer, pools, obstacles := drain.New(cluster, events, metrics), nodestate.NewPools(live), report.NewObstacles()
	remediator := remediation.New(remediation.Config{
		Cluster: cluster, Drainer: drainer, Pools: pools, Obstacles: obstacles, Events: events, Metrics: metrics, NodeImage: c.Images.Node,
	})
	nodes := node.New(node.Config{
		Cluster: cluster, Catalogs: catalogs, Images: c.Images, Drainer: drainer, Pools: pools, Obstacles: obstacles, Remediator: remediator, Events: events,
		Metrics: metrics,
	})
	if err := nodes.SetUp(mgr); err != nil { //nolint:contextcheck // predicates get no context
		return err
	}
	policies := policy.New(policy.Config{
		Cluster: cluster, Catalogs: catalogs, Events: events, Metrics: metrics, Schemas: c.Schemas, Lacks: c.Lacks, ServiceMonitors: monitors,
		Reduced: c.server.Explain(),
	})
	return errors.Join(policies.SetUp(mgr), mgr.AddHealthzCheck("nodes", nodes.Live), mgr.AddHealthzCheck("policy", policies.Live))
}

// servesMonitors reports whether the cluster serves ServiceMonitors.
func servesMonitors(mgr ctrl.Manager) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(policy.MonitorKind.GroupKind(), policy.MonitorKind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
