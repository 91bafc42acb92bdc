package plugin

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
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requeue"
)

// promises are the devices that are kept for pods until their victims have released them: kube-scheduler's
// nomination keeps cpu and memory only. A promise ends when its pod is reserved a node, is gone, or is
// nominated no more. It is safe for concurrent use. Promises live in memory: after a restart of the
// scheduler others may be faster.
type promises struct {
	index *index.Index
	// pods are those that the API server has.
	pods corelisters.PodLister
	// requeuer retries other pods when a promise ends, which no event reports.
	requeuer *requeue.Requeuer

	mu sync.Mutex
	of map[types.UID]promise
}

// promise is what a pod waits for.
type promise struct {
	node string
	// claims are those of the victims.
	claims sets.Set[types.UID]
}

func newPromises(x *index.Index, pods corelisters.PodLister, r *requeue.Requeuer) *promises {
	return &promises{index: x, pods: pods, requeuer: r, of: map[types.UID]promise{}}
}

// keep keeps the devices for the pod.
func (p *promises) keep(pod *corev1.Pod, to promise, devices []resourceapi.DeviceRequestAllocationResult) {
	p.mu.Lock()
	p.of[pod.UID] = to
	p.index.Promise(pod.UID, to.node, devices)
	p.mu.Unlock()
	// The pod may be gone since the attempt began: of that nobody tells a second time.
	if known, err := p.pods.Pods(pod.Namespace).Get(pod.Name); err != nil || known.UID != pod.UID || known.DeletionTimestamp != nil {
		p.end(pod.UID)
	}
}

// get returns what was promised to the pod.
func (p *promises) get(pod types.UID) (promise, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, ok := p.of[pod]
	return to, ok
}

// end ends the promise to the pod, if there is one.
func (p *promises) end(pod types.UID) {
	p.mu.Lock()
	_, ok := p.of[pod]
	if ok {
		delete(p.of, pod)
		p.index.Redeem(pod)
	}
	p.mu.Unlock()
	if ok {
		p.requeuer.EventProcessed("", index.MayFreeDevices)
	}
}

// follow has promises end with the nomination of their pods.
func (p *promises) follow(h fwk.Handle) error {
	_, err := h.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, _ := before.(*corev1.Pod)
			is, _ := after.(*corev1.Pod)
			if was == nil || is == nil {
				return
			}
			dropped := was.Status.NominatedNodeName != "" && is.Status.NominatedNodeName != was.Status.NominatedNodeName
			if dropped || is.Spec.NodeName != "" || is.DeletionTimestamp != nil {
				p.end(is.UID)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				p.end(pod.UID)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	return nil
}

// results returns the choice as the allocation that it stands for.
func (e *eviction) results(pod types.UID, choice fit.Choice) []resourceapi.DeviceRequestAllocationResult {
	var results []resourceapi.DeviceRequestAllocationResult
	for r, pick := range choice.Picks {
		a := &e.asked.Requests[r].Alternatives[pick.Alternative]
		for _, device := range pick.Devices {
			result := resourceapi.DeviceRequestAllocationResult{
				Request: e.asked.Requests[r].Name, Driver: e.node.Driver, Pool: e.node.Pool, Device: e.node.Devices[device].Name,
			}
			if e.node.Fit.Devices[device].Use.Shape.Shared() && a.Shares != nil {
				result.ShareID, result.ConsumedCapacity = &pod, consumed(a.Shares[device])
			}
			results = append(results, result)
		}
	}
	return results
}

// consumed is the inverse of wire.Share.
func consumed(s gpu.Share) map[resourceapi.QualifiedName]resource.Quantity {
	return map[resourceapi.QualifiedName]resource.Quantity{
		wire.Memory:  *resource.NewQuantity(int64(s.MemoryBytes), resource.BinarySI),
		wire.Shares:  *resource.NewQuantity(int64(s.Shares), resource.DecimalSI),
		wire.Compute: *resource.NewQuantity(int64(s.Compute), resource.DecimalSI),
	}
}
