package explain

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

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// dryRun is a scheduler with a snapshot of the cluster that schedules nothing.
type dryRun struct {
	framework framework.Framework
	nodes     fwk.NodeInfoLister
	plugin    *plugin.Plugin
}

// syncTimeout limits the time until all informers have synced.
const syncTimeout = 30 * time.Second

// newDryRun returns a scheduler with the profile and a snapshot of the API server's objects. Its informers end with ctx; it
// never writes.
func newDryRun(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile) (*dryRun, error) {
	d := &dryRun{}
	factory := plugin.NewFactory()
	registry := frameworkruntime.Registry{plugin.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		created, err := factory.New(ctx, args, h)
		d.plugin, _ = created.(*plugin.Plugin)
		return created, err
	}}
	snapshot := internalcache.NewEmptySnapshot()
	informers := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(ctx, client, informers, nil, discardEvents,
		scheduler.WithProfiles(profile), scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithNodeInfoSnapshot(snapshot))
	if err != nil {
		return nil, fmt.Errorf("start a scheduler: %w", err)
	}
	if d.plugin == nil {
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
	d.framework, d.nodes = s.Profiles[profile.SchedulerName], snapshot.NodeInfos()
	return d, nil
}

// discardEvents returns an event recorder without a sink.
func discardEvents(name string) events.EventRecorderLogger {
	return events.NewBroadcaster(&events.EventSinkImpl{}).NewRecorder(nil, name)
}
