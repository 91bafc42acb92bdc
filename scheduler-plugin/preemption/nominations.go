package preemption

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// nominations are the devices that are kept for preempting pods until their victims have released them:
// kube-scheduler's own nomination keeps cpu and memory only. A nomination ends when its pod is reserved a node, is
// deleted, or loses its nominated node. Nominations are kept in memory: after a restart of the scheduler another pod
// may take the devices. It is safe for concurrent use.
type nominations struct {
	index *index.Index
	// pods lists the pods that exist.
	pods corelisters.PodLister
	// requeuer retries other pods when a nomination ends, which no event reports.
	requeuer *requeue.Requeuer

	mu    sync.Mutex
	byPod map[types.UID]nomination
}

// nomination is what a pod waits for.
type nomination struct {
	node string
	// claims are those of the victims.
	claims sets.Set[types.UID]
}

func newNominations(x *index.Index, pods corelisters.PodLister, r *requeue.Requeuer) *nominations {
	return &nominations{index: x, pods: pods, requeuer: r, byPod: map[types.UID]nomination{}}
}

// add keeps the devices for the pod.
func (n *nominations) add(pod *corev1.Pod, waitsFor nomination, devices []resourceapi.DeviceRequestAllocationResult) {
	n.mu.Lock()
	n.byPod[pod.UID] = waitsFor
	n.index.Nominate(pod.UID, waitsFor.node, devices)
	n.mu.Unlock()
	// If the pod was deleted during the attempt, its deletion has been processed already and no event will follow.
	if existing, err := n.pods.Pods(pod.Namespace).Get(pod.Name); err != nil || existing.UID != pod.UID || existing.DeletionTimestamp != nil {
		n.end(pod.UID)
	}
}

// get returns the pod's nomination.
func (n *nominations) get(pod types.UID) (nomination, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	waitsFor, ok := n.byPod[pod]
	return waitsFor, ok
}

// end ends the pod's nomination, if there is one.
func (n *nominations) end(pod types.UID) {
	n.mu.Lock()
	_, ok := n.byPod[pod]
	if ok {
		delete(n.byPod, pod)
		n.index.EndNomination(pod)
	}
	n.mu.Unlock()
	if ok {
		n.requeuer.EventProcessed("", index.MayFreeDevices)
	}
}

// follow ends nominations as the informer of pods reports that their pods no longer need them.
func (n *nominations) follow(pods cache.SharedIndexInformer) error {
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, _ := before.(*corev1.Pod)
			is, _ := after.(*corev1.Pod)
			if was == nil || is == nil {
				return
			}
			dropped := was.Status.NominatedNodeName != "" && is.Status.NominatedNodeName != was.Status.NominatedNodeName
			if dropped || is.Spec.NodeName != "" || is.DeletionTimestamp != nil {
				n.end(is.UID)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				n.end(pod.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	return nil
}

// allocationOf returns the choice as the allocation results that the pod would get.
func (d *dryRun) allocationOf(pod types.UID, choice fit.Choice) []resourceapi.DeviceRequestAllocationResult {
	var results []resourceapi.DeviceRequestAllocationResult
	for r, pick := range choice.Picks {
		a := &d.requirements.Requests[r].Alternatives[pick.Alternative]
		for _, device := range pick.Devices {
			result := resourceapi.DeviceRequestAllocationResult{
				Request: d.requirements.Requests[r].Name, Driver: d.node.Driver, Pool: d.node.Pool, Device: d.node.Devices[device].Name,
			}
			if d.node.Fit.Devices[device].Use.Shape.Shared() && a.Shares != nil {
				result.ShareID, result.ConsumedCapacity = &pod, consumedCapacity(a.Shares[device])
			}
			results = append(results, result)
		}
	}
	return results
}

// consumedCapacity is the inverse of wire.Share.
func consumedCapacity(s gpu.Share) map[resourceapi.QualifiedName]resource.Quantity {
	return map[resourceapi.QualifiedName]resource.Quantity{
		wire.Memory:  *resource.NewQuantity(int64(s.MemoryBytes), resource.BinarySI),
		wire.Shares:  *resource.NewQuantity(int64(s.Shares), resource.DecimalSI),
		wire.Compute: *resource.NewQuantity(int64(s.Compute), resource.DecimalSI),
	}
}
