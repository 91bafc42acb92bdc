package discovery

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// watch watches the GPUNode until ctx ends and reports whether it has lost the published hardware: it was deleted, it has no hardware status, or events
// since the last read are unavailable. Without a GPUNode, or if the API server is not reachable, it returns false at once.
func (d *Discovery) watch(ctx context.Context) bool {
	deadline, _ := ctx.Deadline()
	seconds := int64(time.Until(deadline)/time.Second) + 1
	w, err := d.gpuNodes.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", d.node).String(), ResourceVersion: d.version, AllowWatchBookmarks: true,
		TimeoutSeconds: &seconds,
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The GPUNode cannot be watched", "node", d.node, "err", err)
		return false
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case event, open := <-w.ResultChan():
			if !open {
				return false
			}
			if d.lost(event) {
				return true
			}
		}
	}
}

// lost processes an event and reports whether the GPUNode has lost the published hardware.
func (d *Discovery) lost(event watch.Event) bool {
	node, ok := event.Object.(*v1alpha1.GPUNode)
	if !ok || event.Type == watch.Deleted {
		return true
	}
	d.version = node.ResourceVersion
	return event.Type != watch.Bookmark && node.Status.Hardware == nil
}
