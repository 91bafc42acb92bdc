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

// How long it is waited after trouble with the API server, doubled from one to the other. A kind that is not installed is asked
// for as often as the last.
const (
	shortestPause = time.Second
	longestPause  = 10 * time.Second
)

// watchTime is how many seconds a watch lasts at least; at most twice as many.
const watchTime = 300

// errNoKind says that the API server does not know GPUNodes: nobody has asked for anything.
var errNoKind = errors.New("the cluster has no GPUNodes")

// follow keeps the latest GPUNode current until ctx ends.
func (k *Keeper) follow(ctx context.Context) {
	pause, trouble := shortestPause, ""
	for ctx.Err() == nil {
		version, err := k.list(ctx)
		if err == nil {
			pause, trouble = shortestPause, ""
			err = k.watch(ctx, version)
		}
		if errors.Is(err, errNoKind) {
			pause = longestPause
		}
		if text := err.Error(); text != trouble && ctx.Err() == nil {
			klog.FromContext(ctx).Info("The GPUNode cannot be followed, trying again", "reason", text)
			trouble = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// list reads the GPUNode and returns the version from which to watch.
func (k *Keeper) list(ctx context.Context) (string, error) {
	list, err := k.config.Client.List(ctx, metav1.ListOptions{FieldSelector: k.selector()})
	switch {
	case apierrors.IsNotFound(err):
		k.see(nil)
		return "", fmt.Errorf("list GPUNode %s: %w: %w", k.config.Node, errNoKind, err)
	case err != nil:
		return "", fmt.Errorf("list GPUNode %s: %w", k.config.Node, err)
	case len(list.Items) == 0:
		k.see(nil)
	default:
		k.see(&list.Items[0])
	}
	return list.ResourceVersion, nil
}

// watch follows the GPUNode from the version on, through as many watches as it takes, and returns why it must be listed again.
func (k *Keeper) watch(ctx context.Context, version string) error {
	for ctx.Err() == nil {
		seconds := int64(watchTime + rand.IntN(watchTime)) //nolint:gosec // it only keeps nodes from asking all at once
		w, err := k.config.Client.Watch(ctx, metav1.ListOptions{
			FieldSelector: k.selector(), ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
		})
		if err != nil {
			return fmt.Errorf("watch GPUNode %s: %w", k.config.Node, err)
		}
		begun := time.Now()
		version, err = k.take(ctx, w, version)
		w.Stop()
		if err != nil {
			return fmt.Errorf("watch GPUNode %s: %w", k.config.Node, err)
		}
		if time.Since(begun) < shortestPause {
			return fmt.Errorf("watch GPUNode %s: it ended at once", k.config.Node)
		}
	}
	return context.Cause(ctx)
}

// take takes in what the watch brings until it or ctx ends, and returns the last version.
func (k *Keeper) take(ctx context.Context, w watch.Interface, version string) (string, error) {
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
			k.see(nil)
		case event.Type == watch.Added, event.Type == watch.Modified:
			k.see(node)
		}
		version = node.ResourceVersion
	}
}

func (k *Keeper) selector() string {
	return fields.OneTermEqualSelector("metadata.name", k.config.Node).String()
}

// see takes in the GPUNode, nil where there is none.
func (k *Keeper) see(node *v1alpha1.GPUNode) {
	k.mu.Lock()
	k.seen, k.node = true, node
	k.mu.Unlock()
	k.stir()
}

// written takes in the GPUNode as a write left it, unless a newer one is known.
func (k *Keeper) written(node *v1alpha1.GPUNode) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.node != nil && number(node) > number(k.node) {
		k.node = node
	}
}

func number(node *v1alpha1.GPUNode) uint64 {
	n, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// latest returns the GPUNode as it was last seen, and whether it was looked for with success.
func (k *Keeper) latest() (node *v1alpha1.GPUNode, seen bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node, k.seen
}

// stir has the GPUNode obeyed soon.
func (k *Keeper) stir() {
	select {
	case k.news <- struct{}{}:
	default:
	}
}
