package expect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Watcher follows pods, jobs, Deployments, claims, slices and events of a cluster, so that nothing is polled and
// a claim that lives only as long as its pod is still known afterwards. It is safe for concurrent use.
type Watcher struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory

	mu sync.Mutex
	// changed is closed, and replaced, at every event.
	changed chan struct{}
	// claims are the claims as they were last seen with an allocation and its devices. Those that were made for a pod are
	// kept by the pod and its name for them: when a pod of a job ends, its claim may be made once more
	// under another name, never allocated.
	claims map[types.NamespacedName]*resourceapi.ResourceClaim
	made   map[madeFor]*resourceapi.ResourceClaim
}

// madeFor is a pod's UID and its own name for a claim.
type madeFor struct {
	pod  types.UID
	name string
}

// NewWatcher returns a Watcher that has seen the cluster once. It watches until ctx ends.
func NewWatcher(ctx context.Context, client kubernetes.Interface) (*Watcher, error) {
	w := &Watcher{
		client:  client,
		factory: informers.NewSharedInformerFactory(client, 0),
		changed: make(chan struct{}),
		claims:  map[types.NamespacedName]*resourceapi.ResourceClaim{},
		made:    map[madeFor]*resourceapi.ResourceClaim{},
	}
	var noted []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{
		w.factory.Core().V1().Pods().Informer(),
		w.factory.Core().V1().Events().Informer(),
		w.factory.Batch().V1().Jobs().Informer(),
		w.factory.Apps().V1().Deployments().Informer(),
		w.factory.Resource().V1().ResourceClaims().Informer(),
		w.factory.Resource().V1().ResourceSlices().Informer(),
	} {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc:    w.note,
			UpdateFunc: func(_, current any) { w.note(current) },
			DeleteFunc: w.note,
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("watch the cluster: %w", err)
		}
		noted = append(noted, registration.HasSynced)
	}
	w.factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), noted...) {
		return nil, fmt.Errorf("watch the cluster: %w", context.Cause(ctx))
	}
	return w, nil
}

// Await returns what has come of the subject as soon as it has settled: when it is what is expected, or
// can never become so. When ctx ends before, it returns what the subject is then.
func (w *Watcher) Await(ctx context.Context, s Subject) (Outcome, error) {
	for {
		changed := w.signal()
		outcome, pods, err := w.observe(s)
		if err != nil {
			return Outcome{}, fmt.Errorf("observe %s: %w", s, err)
		}
		if outcome.settled() && w.given(outcome, pods) {
			return outcome, w.readLogs(ctx, &outcome, pods)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return outcome, nil
		}
	}
}

// note remembers claims and wakes the waiting callers.
func (w *Watcher) note(object any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if claim, ok := object.(*resourceapi.ResourceClaim); ok {
		keep(w.claims, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim)
		if name, made := claim.Annotations[resourceapi.PodResourceClaimAnnotation]; made {
			for _, owner := range claim.OwnerReferences {
				keep(w.made, madeFor{owner.UID, name}, claim)
			}
		}
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// signal returns a channel that is closed at the next event.
func (w *Watcher) signal() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// keep stores the claim unless that would forget an allocation, or what was told about its devices: the
// agent takes that back when the pod has ended.
func keep[K comparable](claims map[K]*resourceapi.ResourceClaim, key K, claim *resourceapi.ResourceClaim) {
	known := claims[key]
	switch {
	case known == nil:
	case claim.Status.Allocation == nil:
		return
	case len(claim.Status.Devices) == 0 && equality.Semantic.DeepEqual(known.Status.Allocation, claim.Status.Allocation):
		return
	}
	claims[key] = claim
}

// claimsOf returns the pod's claims in the pod's order, the one for its extended resources last.
func (w *Watcher) claimsOf(pod *corev1.Pod) []podClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	var claims []podClaim
	for _, c := range pod.Spec.ResourceClaims {
		claim := w.made[madeFor{pod.UID, c.Name}]
		if c.ResourceClaimName != nil {
			claim = w.claims[types.NamespacedName{Namespace: pod.Namespace, Name: *c.ResourceClaimName}]
		}
		claims = append(claims, podClaim{c.Name, claim})
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		claim := w.claims[types.NamespacedName{Namespace: pod.Namespace, Name: extended.ResourceClaimName}]
		claims = append(claims, podClaim{extendedClaim, claim})
	}
	return claims
}

// given reports whether all is known that the pods of the outcome were given before they ran: the caches learn of each kind of object in their own time.
func (w *Watcher) given(o Outcome, pods []*corev1.Pod) bool {
	for i, pod := range pods {
		if phase := podPhase(pod); phase != Running && phase != Succeeded {
			continue
		}
		unseen := func(c podClaim) bool { return c.claim == nil || c.claim.Status.Allocation == nil }
		unpublished := func(g Grant) bool { return g.Attributes == nil }
		if slices.ContainsFunc(w.claimsOf(pod), unseen) || slices.ContainsFunc(o.Pods[i].Grants(), unpublished) {
			return false
		}
	}
	return true
}

// readLogs reads the logs of all containers, of some pods at a time: one whose log stays empty takes no time from the others.
func (w *Watcher) readLogs(ctx context.Context, o *Outcome, pods []*corev1.Pod) error {
	var readers errgroup.Group
	readers.SetLimit(logReaders)
	for p, pod := range pods {
		readers.Go(func() error {
			for c := range o.Pods[p].Containers {
				container := &o.Pods[p].Containers[c]
				log, err := w.log(ctx, o, pod, *container)
				if err != nil && o.Phase != Failed {
					return fmt.Errorf("read the log of %s/%s, container %s: %w", pod.Namespace, pod.Name, container.Name, err)
				}
				container.Log = log
			}
			return nil
		})
	}
	return readers.Wait()
}

// A log is read every logPeriod until it has everything that is expected of the container and two reads are equal: containerd reports the end of a
// container before its writer has copied all output to the file, by seconds on a loaded machine, and a list of devices has several lines. Other content
// of a container that has ended is read logLooks times; a count, because time also passes while the machine is suspended. An empty log is read until ctx
// ends: every program of the examples that is judged by its output prints something. containerd loses the whole output of a container that ends before
// containerd has noticed that its FIFOs were opened (client/task.go, Delete; "Failed to pipe stdout … reading from a closed fifo" in its log): on a loaded
// machine a program of many pods at a time therefore runs for seconds.
const (
	logPeriod  = 100 * time.Millisecond
	logLooks   = 150
	logReaders = 4
)

// log reads the log of a container. When the expected content is missing until the end, the comparison reports it; a log in which there is nothing
// until the end is an error, because the content may never have been read.
func (w *Watcher) log(ctx context.Context, o *Outcome, pod *corev1.Pod, container Container) (string, error) {
	if o.Phase == Pending {
		return "", nil
	}
	view := o.Subject.Expectation.of(container.Name)
	looks := 0
	err := wait.PollUntilContextCancel(ctx, logPeriod, true, func(ctx context.Context) (bool, error) {
		raw, err := w.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name}).DoRaw(ctx)
		if err != nil {
			return false, err
		}
		unchanged := looks > 0 && string(raw) == container.Log
		container.Log = string(raw)
		looks++
		complete := container.Log != "" // the log of an unexpected phase is printed, not compared
		if o.Phase == o.Subject.Expectation.Phase {
			complete = len(compareContainer(view, container)) == 0
		}
		exhausted := o.Phase != Running && looks >= logLooks && (container.Log != "" || o.Phase == Failed)
		return complete && unchanged || exhausted, nil
	})
	if ctx.Err() != nil {
		err = nil
		if container.Log == "" {
			err = fmt.Errorf("nothing is in it until the end of the wait, in %d reads: %w", looks, context.Cause(ctx))
		}
	}
	return container.Log, err
}
