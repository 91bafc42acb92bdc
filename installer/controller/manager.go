package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Lease is the name of the leader's lease.
const Lease = "tessera-installer"

// UserAgent is how the installer names itself to the API server.
const UserAgent = "tessera-installer"

// monitorKind is the kind of the Prometheus Operator.
var monitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// Config is how an installer runs.
type Config struct {
	// Access is how the API server is reached.
	Access *rest.Config
	// Namespace is the installer's own.
	Namespace string
	// Images are those of the release, Schemas the hashes of its CRDs' schemas by their names; nil: not compared.
	Images  render.Images
	Schemas map[string]string
	// Lacks names fields of the release that a CRD of another hash does not know; nil: one of another hash lacks some.
	Lacks func(crd *unstructured.Unstructured) ([]string, error)
	// LeaderElect has one of several installers work at a time.
	LeaderElect bool
	// MetricsAddress is where metrics are served; 0 is nowhere.
	MetricsAddress string
	// Registry takes the installer's metrics; nil is controller-runtime's.
	Registry prometheus.Registerer
}

// Limits of what the installer asks of the API server, per second and at once. In a cluster that is as it should be it asks nothing.
const (
	requests = 50
	burst    = 100
	// workers is how many nodes are worked on at once.
	workers = 8
	// firstRetry and lastRetry are after what times what went wrong is tried again: soon, and later on often enough that an administrator who
	// removed an obstacle sees it.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// Run works until the context ends, or until the lease is lost, which is an error.
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
	mgr, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme, Logger: klog.FromContext(ctx), Cache: CacheOptions(c.Namespace),
		Client:         client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: new(true)}},
		Metrics:        metricsserver.Options{BindAddress: c.MetricsAddress},
		LeaderElection: c.LeaderElect, LeaderElectionID: Lease, LeaderElectionNamespace: c.Namespace, LeaderElectionReleaseOnCancel: true,
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return fmt.Errorf("start installer: %w", err)
	}
	if err := setUp(ctx, mgr, c); err != nil {
		return fmt.Errorf("start installer: %w", err)
	}
	return mgr.Start(ctx)
}

// setUp makes indexes and reconcilers.
func setUp(ctx context.Context, mgr ctrl.Manager, c Config) error {
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return err
	}
	if c.Registry == nil {
		c.Registry = ctrlmetrics.Registry
	}
	m, err := NewMetrics(c.Registry)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &resourceapi.ResourceClaim{}, IndexClaimPool, ClaimPools); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, IndexPodNode, PodNodes); err != nil {
		return err
	}
	cluster := action.Cluster{Client: mgr.GetClient(), Live: live, Namespace: c.Namespace}
	_, err = mgr.GetRESTMapper().RESTMapping(monitorKind.GroupKind(), monitorKind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	events := mgr.GetEventRecorder(UserAgent)
	nodes := &nodeReconciler{
		Cluster: cluster, images: c.Images, drainer: drainer{live: live, refused: newRefusedEvictions()}, obstacles: NewObstacles(), recorder: events, metrics: m,
		pools: NewPools(),
	}
	policies := &policyReconciler{
		Cluster: cluster, images: c.Images, schema: &crdSchemas{released: c.Schemas, lacks: c.Lacks}, recorder: events, metrics: m, monitors: err == nil,
	}
	if err := watchNodes(mgr, nodes); err != nil {
		return err
	}
	return watchPolicies(mgr, policies)
}

// watchNodes has a node looked at when anything changes that its phase depends on.
func watchNodes(mgr ctrl.Manager, r *nodeReconciler) error {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	b := builder.ControllerManagedBy(mgr).Named("node").WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retries}).
		For(&v1alpha1.GPUNode{}).
		Watches(&v1alpha1.GPUNode{}, r.waiting(), builder.WithPredicates(remediationChanged())).
		Watches(&corev1.Node{}, byName(), builder.WithPredicates(Changed())).
		Watches(&corev1.Pod{}, byNode(), builder.WithPredicates(Changed())).
		Watches(&resourceapi.DeviceTaintRule{}, byLabel(), builder.WithPredicates(Changed())).
		Watches(&resourceapi.ResourceClaim{}, r.byClaim(), builder.WithPredicates(Changed())).
		Watches(&v1alpha1.ClusterPolicy{}, r.all(), builder.WithPredicates(Decided())).
		Watches(&v1alpha1.NVIDIADriver{}, r.all(), builder.WithPredicates(Decided())).
		Watches(&corev1.ConfigMap{}, r.all(), builder.WithPredicates(ContentsChanged(), named(r.referenced))).
		Watches(&corev1.Secret{}, r.all(), builder.WithPredicates(ContentsChanged(), named(r.referenced)))
	return b.Complete(r)
}

// passDelay gathers what happens within it into one pass.
const passDelay = 100 * time.Millisecond

// watchPolicies has everything looked at when anything changes that objects or rollouts depend on.
func watchPolicies(mgr ctrl.Manager, r *policyReconciler) error {
	b := builder.ControllerManagedBy(mgr).Named("policy").
		Watches(&v1alpha1.ClusterPolicy{}, afterDelay(), builder.WithPredicates(Decided())).
		Watches(&v1alpha1.NVIDIADriver{}, afterDelay(), builder.WithPredicates(Decided())).
		Watches(&v1alpha1.GPUNode{}, afterDelay()).
		Watches(&corev1.Node{}, afterDelay(), builder.WithPredicates(Changed())).
		Watches(&corev1.ConfigMap{}, afterDelay(), builder.WithPredicates(ContentsChanged())).
		Watches(&corev1.Secret{}, afterDelay(), builder.WithPredicates(ContentsChanged())).
		Watches(&appsv1.DaemonSet{}, afterDelay(), builder.WithPredicates(workloadChanged())).
		Watches(&appsv1.Deployment{}, afterDelay(), builder.WithPredicates(workloadChanged()))
	for _, object := range r.watchedKinds() {
		b = b.Watches(object, afterDelay(), builder.WithPredicates(Changed()))
	}
	return b.Complete(r)
}
