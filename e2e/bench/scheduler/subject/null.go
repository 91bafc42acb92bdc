package subject

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
)

// null makes the writes of kube-scheduler for every pod, without decisions: the nodes are used in turn,
// pod by pod, and their first device is allocated every time. The pods that it binds per second are the
// capacity of the API server.
type null struct {
	client kubernetes.Interface
	fleet  *fleet.Fleet
	pods   corelisters.PodLister
	claims resourcelisters.ResourceClaimLister
	events events.EventRecorderLogger
	gate   *gate
	node   atomic.Int64
}

// inFlight is the number of pods that are written concurrently. More do not make the API server faster.
const inFlight = 64

// newNull returns the null scheduler, its caches filled.
func newNull(ctx context.Context, s Spec, client kubernetes.Interface) (*contender, error) {
	f, err := fleet.New(s.Fleet)
	if err != nil {
		return nil, err
	}
	broadcaster, err := recorder(ctx, client)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	n := &null{
		client: client, fleet: f, gate: newGate(),
		pods: factory.Core().V1().Pods().Lister(), claims: factory.Resource().V1().ResourceClaims().Lister(),
		events: profile.NewRecorderFactory(broadcaster)(fleet.SchedulerName),
	}
	c := &contender{gate: n.gate, run: n.run, supply: notSupplied, waiting: func() int { return len(n.unbound()) }}
	return c, c.sync(ctx, factory)
}

func (n *null) unbound() []*corev1.Pod {
	all, err := n.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister of a cache has no errors
	}
	var unbound []*corev1.Pod
	for _, pod := range all {
		if pod.Spec.NodeName == "" && pod.Spec.SchedulerName == fleet.SchedulerName {
			unbound = append(unbound, pod)
		}
	}
	return unbound
}

// run binds the waiting pods whenever the gate is open.
func (n *null) run(ctx context.Context) {
	places := make(chan struct{}, inFlight)
	begun := map[types.UID]bool{}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for ctx.Err() == nil {
		<-n.gate.passage()
		for _, pod := range n.unbound() {
			if begun[pod.UID] {
				continue
			}
			begun[pod.UID] = true
			places <- struct{}{}
			go func() {
				defer func() { <-places }()
				if err := n.bind(ctx, pod); err != nil {
					klog.FromContext(ctx).Error(err, "Bind", "pod", klog.KObj(pod))
				}
			}()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// bind makes the writes for one pod, in kube-scheduler's order.
func (n *null) bind(ctx context.Context, pod *corev1.Pod) error {
	node := int(n.node.Add(1)) % n.fleet.Nodes
	if len(pod.Spec.ResourceClaims) > 0 {
		nominated := pod.Status.DeepCopy()
		nominated.NominatedNodeName = n.fleet.Name(node)
		if err := util.PatchPodStatus(ctx, n.client, pod.Name, pod.Namespace, &pod.Status, nominated); err != nil {
			return fmt.Errorf("nominate a node: %w", err)
		}
	}
	for _, used := range pod.Spec.ResourceClaims {
		if err := n.allocate(ctx, pod, *used.ResourceClaimName, node); err != nil {
			return err
		}
	}
	err := n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: n.fleet.Name(node)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	n.events.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %v/%v to %v", pod.Namespace, pod.Name, n.fleet.Name(node))
	return nil
}

func (n *null) allocate(ctx context.Context, pod *corev1.Pod, name string, node int) error {
	known, err := n.claims.ResourceClaims(pod.Namespace).Get(name)
	if err != nil {
		return err
	}
	claim := known.DeepCopy()
	claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
	claims := n.client.ResourceV1().ResourceClaims(pod.Namespace)
	if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	claim.Status.Allocation = n.fleet.Anything(node)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	if _, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	return nil
}
