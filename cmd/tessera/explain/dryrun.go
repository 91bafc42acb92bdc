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

// dryRun is a scheduler that knows the cluster and schedules nothing.
type dryRun struct {
	framework framework.Framework
	nodes     fwk.NodeInfoLister
	plugin    *plugin.Plugin
}

// patience is how long the cluster may take to say everything it has.
const patience = 30 * time.Second

// newDryRun returns a scheduler of the profile that has seen everything the API server has. It reads
// through informers, which end with ctx, and never writes.
func newDryRun(ctx context.Context, client kubernetes.Interface, profile schedulerconfig.KubeSchedulerProfile) (*dryRun, error) {
	d := &dryRun{}
	factory := plugin.NewFactory()
	registry := frameworkruntime.Registry{plugin.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		made, err := factory.New(ctx, args, h)
		d.plugin, _ = made.(*plugin.Plugin)
		return made, err
	}}
	snapshot := internalcache.NewEmptySnapshot()
	informers := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(ctx, client, informers, nil, unheard,
		scheduler.WithProfiles(profile), scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithNodeInfoSnapshot(snapshot))
	if err != nil {
		return nil, fmt.Errorf("start a scheduler: %w", err)
	}
	if d.plugin == nil {
		return nil, fmt.Errorf("start a scheduler: its profile %s does not have the plugin %s", profile.SchedulerName, plugin.Name)
	}
	informers.Start(ctx.Done())
	reading, end := context.WithTimeout(ctx, patience)
	defer end()
	if err := informers.WaitForCacheSyncWithContext(reading).AsError(); err != nil {
		return nil, fmt.Errorf("read the cluster as a scheduler does: %w\nMay your user list and watch these? An administrator can bind the ClusterRole system:kube-scheduler", err)
	}
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	if err := s.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	d.framework, d.nodes = s.Profiles[profile.SchedulerName], snapshot.NodeInfos()
	return d, nil
}

// unheard returns a recorder of events that nobody listens to.
func unheard(name string) events.EventRecorderLogger {
	return events.NewBroadcaster(&events.EventSinkImpl{}).NewRecorder(nil, name)
}
