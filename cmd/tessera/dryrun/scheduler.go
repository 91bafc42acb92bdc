// Package dryrun runs a scheduler with Tessera's plugin on a snapshot of a cluster. It reads what a scheduler reads and writes nothing.
package dryrun

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// Scheduler is a scheduler with a snapshot of the cluster that schedules nothing.
type Scheduler struct {
	// Framework runs the plugins of the profile; Others, if it was requested, those without Tessera's.
	Framework, Others framework.Framework
	Nodes             fwk.NodeInfoLister
	Plugin            *plugin.Plugin
}

// syncTimeout limits the time until all informers have synced.
const syncTimeout = 30 * time.Second

// New returns a scheduler with the profile and a snapshot of the API server's objects. Its informers end with ctx.
func New(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile) (*Scheduler, error) {
	return newScheduler(ctx, client, profile)
}

// NewWithOthers is New with the field Others.
func NewWithOthers(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile) (*Scheduler, error) {
	return newScheduler(ctx, client, profile, withoutPlugin(profile))
}

// newScheduler returns a scheduler with the profile, and others at most one.
func newScheduler(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile, others ...schedulerconfig.KubeSchedulerProfile) (*Scheduler, error) {
	metrics.Register()
	d := &Scheduler{}
	factory := plugin.NewFactory()
	registry := frameworkruntime.Registry{plugin.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		created, err := factory.New(ctx, args, h)
		d.Plugin, _ = created.(*plugin.Plugin)
		return created, err
	}}
	snapshot := internalcache.NewEmptySnapshot()
	informers := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(ctx, client, informers, nil, discardEvents,
		scheduler.WithProfiles(append(others, profile)...), scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithNodeInfoSnapshot(snapshot))
	if err != nil {
		return nil, fmt.Errorf("start a scheduler: %w", err)
	}
	if d.Plugin == nil {
		return nil, fmt.Errorf("start a scheduler: its profile %s does not have the plugin %s", profile.SchedulerName, plugin.Name)
	}
	informers.Start(ctx.Done())
	syncing, end := context.WithTimeout(ctx, syncTimeout)
	defer end()
	if err := informers.WaitForCacheSyncWithContext(syncing).AsError(); err != nil {
		return nil, fmt.Errorf("list the scheduler's objects: %w\nCheck that your user may list and watch them. An administrator can bind the ClusterRole system:kube-scheduler", err)
	}
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, fmt.Errorf("take a snapshot of the cluster: %w", err)
	}
	if err := s.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return nil, fmt.Errorf("take a snapshot of the cluster: %w", err)
	}
	d.Framework, d.Nodes = s.Profiles[profile.SchedulerName], snapshot.NodeInfos()
	for _, p := range others {
		d.Others = s.Profiles[p.SchedulerName]
	}
	return d, nil
}

// discardEvents returns an event recorder without a sink.
func discardEvents(name string) events.EventRecorderLogger {
	return events.NewBroadcaster(&events.EventSinkImpl{}).NewRecorder(nil, name)
}
