package plugin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
)

// reasonMaintenance is the reason of nodes whose GPUs are out of service.
const reasonMaintenance = "the GPUs are out of service (node label " + v1alpha1.LabelMaintenance + ")"

// checkOutOfService rejects a node on which the pod would use GPUs that are out of service: held for remediation, or all
// GPUs of a node under maintenance. It returns nil otherwise.
//
// The allocator evaluates device taints when it allocates a claim, and never again. A replacement pod of an allocated
// claim would therefore start on a GPU that is being drained, be evicted, and be replaced by the next one. Requests that
// tolerate the taint pass. Validations of the installer pass too: they tolerate maintenance, and use monitors, which are
// never tainted for remediation.
//
// A rejected pod is retried when the node's labels or its ResourceSlices change, for which the in-tree plugin registers,
// and when a DeviceTaintRule changes (Requeuer). The cost is one lookup for nodes without devices of the pod.
func (p *Plugin) checkOutOfService(cs fwk.CycleState, c *cycle, info fwk.NodeInfo) *fwk.Status {
	of := claimsOfCycle(cs)
	if of == nil {
		return nil
	}
	if device, key := p.heldDevice(of, info.Node().Name); device != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("allocated device %s is held for remediation (device taint %s)", device, key))
	}
	if _, out := info.Node().Labels[v1alpha1.LabelMaintenance]; !out {
		return nil
	}
	if slices.ContainsFunc(of.results, p.isClosedToMaintenance) || c != nil && p.choosesUntolerated(c, of, info) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasonMaintenance)
	}
	return nil
}

// heldDevice returns the name of an allocated device of the node whose GPU is held for remediation, and the key of the
// taint, unless the request tolerates it. It returns empty strings if there is none.
func (p *Plugin) heldDevice(of *podClaims, node string) (device, key string) {
	if len(of.results) == 0 {
		return "", ""
	}
	n, ok := p.shared.index.Node(node)
	if !ok {
		return "", ""
	}
	key = wire.RemedyKey(n.Driver)
	for i := range of.results {
		r := &of.results[i]
		if r.Driver != n.Driver || r.Pool != n.Pool {
			continue
		}
		for _, d := range n.Devices {
			if d.Name == r.Device && slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool {
				return t.Key == key && keepsPodsOff(t) && !toleratesTaint(r.Tolerations, t)
			}) {
				return r.Device, key
			}
		}
	}
	return "", ""
}

// keepsPodsOff reports whether the taint has an effect on pods.
func keepsPodsOff(t resourceapi.DeviceTaint) bool {
	return t.Effect == resourceapi.DeviceTaintEffectNoSchedule || t.Effect == resourceapi.DeviceTaintEffectNoExecute
}

// isClosedToMaintenance reports whether the allocated device is one of Tessera's and its request does not tolerate
// maintenance.
func (p *Plugin) isClosedToMaintenance(r resourceapi.DeviceRequestAllocationResult) bool {
	return slices.Contains(p.args.Drivers, r.Driver) && !toleratesMaintenance(r.Tolerations)
}

// choosesUntolerated reports whether the pod would get a device of Tessera on the node for a request that does not
// tolerate maintenance.
func (p *Plugin) choosesUntolerated(c *cycle, of *podClaims, info fwk.NodeInfo) bool {
	if of.allPendingTolerate(c.extended) {
		return false
	}
	a, decided := p.answerOn(c, info)
	return decided && a.Fits
}

// podToleratesMaintenance reports whether every request of the pod that is still to be allocated tolerates maintenance.
func (p *Plugin) podToleratesMaintenance(pod *corev1.Pod) bool {
	of, err := p.podClaimsOf(pod)
	return err == nil && of.allPendingTolerate(p.shared.extended.Requested(pod))
}

// allPendingTolerate reports whether every request that is still to be allocated tolerates maintenance. Extended
// resources have no tolerations.
func (of *podClaims) allPendingTolerate(extended []corev1.ResourceName) bool {
	return len(extended) == 0 && !slices.ContainsFunc(of.pending, func(claim *resourceapi.ResourceClaim) bool {
		return slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return r.Exactly != nil && !toleratesMaintenance(r.Exactly.Tolerations) ||
				slices.ContainsFunc(r.FirstAvailable, func(s resourceapi.DeviceSubRequest) bool { return !toleratesMaintenance(s.Tolerations) })
		})
	})
}

func toleratesMaintenance(tolerations []resourceapi.DeviceToleration) bool {
	return toleratesTaint(tolerations, resourceapi.DeviceTaint{Key: v1alpha1.TaintMaintenance, Effect: resourceapi.DeviceTaintEffectNoSchedule})
}

func toleratesTaint(tolerations []resourceapi.DeviceToleration, taint resourceapi.DeviceTaint) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) })
}
