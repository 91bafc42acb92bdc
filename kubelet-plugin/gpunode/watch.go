package gpunode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// The pauses after an error of the API server: the first one, doubled after each further error up to the last one. Without a CRD the pause
// is maxRetryDelay from the start. client-go's reflector is not used because it pauses up to a minute.
const (
	minRetryDelay = time.Second
	maxRetryDelay = 10 * time.Second
)

// minWatchSeconds is the minimum duration of a watch; the maximum is twice as long.
const minWatchSeconds = 300

// errNoCRD is returned when the API server does not serve GPUNodes, so that nothing is ordered.
var errNoCRD = errors.New("the cluster has no GPUNodes")

// watchNode keeps the latest GPUNode current until ctx ends.
func (c *Controller) watchNode(ctx context.Context) {
	delay, logged := minRetryDelay, ""
	for ctx.Err() == nil {
		version, err := c.list(ctx)
		if err == nil {
			delay, logged = minRetryDelay, ""
			err = c.watch(ctx, version)
		}
		if errors.Is(err, errNoCRD) {
			delay = maxRetryDelay
		}
		if text := err.Error(); text != logged && ctx.Err() == nil {
			klog.FromContext(ctx).Info("GPUNode not watched, retrying", "node", c.config.Node, "reason", text)
			logged = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRetryDelay)
	}
}

// list reads the GPUNode and returns the resource version from which to watch.
func (c *Controller) list(ctx context.Context) (string, error) {
	list, err := c.config.Client.List(ctx, metav1.ListOptions{FieldSelector: c.selector()})
	switch {
	case apierrors.IsNotFound(err):
		c.setNode(nil)
		return "", fmt.Errorf("list GPUNode %s: %w: %w", c.config.Node, errNoCRD, err)
	case err != nil:
		return "", fmt.Errorf("list GPUNode %s: %w", c.config.Node, err)
	case len(list.Items) == 0:
		c.setNode(nil)
	default:
		c.setNode(&list.Items[0])
	}
	return list.ResourceVersion, nil
}

// watch watches the GPUNode from the resource version on, with a new watch whenever one ends, and returns why it must be listed again.
func (c *Controller) watch(ctx context.Context, version string) error {
	for ctx.Err() == nil {
		seconds := int64(minWatchSeconds + rand.IntN(minWatchSeconds)) //nolint:gosec // it only spreads the requests of the nodes
		w, err := c.config.Client.Watch(ctx, metav1.ListOptions{
			FieldSelector: c.selector(), ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
		})
		if err != nil {
			return fmt.Errorf("watch GPUNode %s: %w", c.config.Node, err)
		}
		begun := time.Now()
		version, err = c.take(ctx, w, version)
		w.Stop()
		if err != nil {
			return fmt.Errorf("watch GPUNode %s: %w", c.config.Node, err)
		}
		if time.Since(begun) < minRetryDelay {
			return fmt.Errorf("watch GPUNode %s: it ended immediately", c.config.Node)
		}
	}
	return context.Cause(ctx)
}

// take processes the events of the watch until it or ctx ends, and returns the last resource version.
func (c *Controller) take(ctx context.Context, w watch.Interface, version string) (string, error) {
	for {
		var event watch.Event
		open := true
		select {
		case <-ctx.Done():
			return version, context.Cause(ctx)
		case event, open = <-w.ResultChan():
		}
		node, ok := event.Object.(*v1alpha1.GPUNode)
		switch {
		case !open:
			return version, nil
		case event.Type == watch.Error:
			return version, apierrors.FromObject(event.Object)
		case !ok:
			continue
		case event.Type == watch.Deleted:
			c.setNode(nil)
		case event.Type == watch.Added, event.Type == watch.Modified:
			c.setNode(node)
		}
		version = node.ResourceVersion
	}
}

func (c *Controller) selector() string {
	return fields.OneTermEqualSelector("metadata.name", c.config.Node).String()
}

// setNode stores the GPUNode, nil if there is none.
func (c *Controller) setNode(node *v1alpha1.GPUNode) {
	c.mu.Lock()
	c.read, c.node = true, node
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// updateNode stores the GPUNode that a write returned, unless the watch has delivered a newer one.
func (c *Controller) updateNode(node *v1alpha1.GPUNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != nil && resourceVersion(node) > resourceVersion(c.node) {
		c.node = node
	}
}

// resourceVersion returns the resource version as a number, which Kubernetes defines since 1.35; 0 if it is none.
func resourceVersion(node *v1alpha1.GPUNode) uint64 {
	n, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// latest returns the last GPUNode, nil if there is none, and whether the API server has answered at all.
func (c *Controller) latest() (node *v1alpha1.GPUNode, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node, c.read
}
