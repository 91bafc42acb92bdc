package cluster

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Names of the agent's DaemonSet and of the scheduler's Deployment and account in deployments/.
const (
	Namespace     = "tessera-system"
	AgentName     = "tessera-node"
	SchedulerName = "tessera-scheduler"
)

// AwaitAgents returns when an agent is ready on every node of the cluster: kubelet has registered it and its
// ResourceSlices are published.
func (c *Cluster) AwaitAgents(ctx context.Context) error {
	sets := c.Client.AppsV1().DaemonSets(Namespace)
	only := fields.OneTermEqualSelector("metadata.name", AgentName).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return sets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return sets.Watch(ctx, o)
		},
	}
	nodes := int32(len(c.Nodes()))
	var last appsv1.DaemonSetStatus
	_, err := watchtools.UntilWithSync(ctx, lw, &appsv1.DaemonSet{}, nil, func(e watch.Event) (bool, error) {
		set, ok := e.Object.(*appsv1.DaemonSet)
		if !ok || e.Type == watch.Deleted {
			return false, errors.New("the DaemonSet was deleted")
		}
		last = set.Status
		current := last.ObservedGeneration == set.Generation
		return current && last.NumberReady >= nodes && last.UpdatedNumberScheduled >= nodes, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", last.NumberReady, nodes, err)
	}
	return nil
}
