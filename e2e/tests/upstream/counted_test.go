package upstream

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// counts returns how often our plugin has decided.
type counts struct {
	filter, reserve atomic.Int64
}

// counted is our plugin under the eyes of counts.
type counted struct {
	*plugin.Plugin
	counts *counts
}

// Filter counts what is let through.
func (c *counted) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	status := c.Plugin.Filter(ctx, state, pod, node)
	if status.IsSuccess() {
		c.counts.filter.Add(1)
	}
	return status
}

// Reserve counts what is given away.
func (c *counted) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	status := c.Plugin.Reserve(ctx, state, pod, node)
	if status.IsSuccess() {
		c.counts.reserve.Add(1)
	}
	return status
}

// registry offers our plugin to upstream's scheduler, counted.
func registry(counts *counts) frameworkruntime.Registry {
	return frameworkruntime.Registry{plugin.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		made, err := plugin.New(ctx, args, handle)
		if err != nil {
			return nil, err
		}
		ours, ok := made.(*plugin.Plugin)
		if !ok {
			return nil, fmt.Errorf("count the plugin's decisions: it is a %T", made)
		}
		return &counted{Plugin: ours, counts: counts}, nil
	}}
}
