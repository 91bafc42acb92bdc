package plugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// maintained is the reason that nodes share whose GPUs are out of service.
const maintained = "the GPUs are out of service (node label " + v1alpha1.LabelMaintenance + ")"

// outOfService refuses a node whose GPUs are out of service for a pod that would use them there. Claims that are allocated already
// ignore the taints of devices, so that a pod with one would come back for ever; for the others it is what the installer's rule of
// taints says, where that is not looked at, too. Requests that tolerate the taint pass, as the installer's validations do. For a node
// without the label, which is nearly every one, it is one lookup. The in-tree plugin has a pod tried again when a node's labels change.
func (p *Plugin) outOfService(c *cycle, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if _, out := info.Node().Labels[v1alpha1.LabelMaintenance]; !out || len(pod.Spec.ResourceClaims) == 0 && c == nil {
		return nil
	}
	of, err := p.podClaimsOf(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if slices.ContainsFunc(of.results, p.concerns) || c != nil && p.chooses(c, of, info) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, maintained)
	}
	return nil
}

// concerns reports whether the device is one of ours whose request does not tolerate that it is out of service.
func (p *Plugin) concerns(r resourceapi.DeviceRequestAllocationResult) bool {
	return slices.Contains(p.args.Drivers, r.Driver) && !tolerate(r.Tolerations)
}

// chooses reports whether the pod would get a device of ours on the node for a request that does not tolerate that it is out of
// service.
func (p *Plugin) chooses(c *cycle, of podClaims, info fwk.NodeInfo) bool {
	if of.tolerant(c.extended) {
		return false
	}
	a, decided := p.answerOn(c, info)
	return decided && a.Fits
}

// tolerant reports whether every request of the pod that is still to be allocated tolerates devices out of service.
func (p *Plugin) tolerant(pod *corev1.Pod) bool {
	of, err := p.podClaimsOf(pod)
	return err == nil && of.tolerant(p.shared.extended.Requested(pod))
}

func (of podClaims) tolerant(backed []corev1.ResourceName) bool {
	return len(backed) == 0 && !slices.ContainsFunc(of.pending, func(claim *resourceapi.ResourceClaim) bool {
		return slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
			return r.Exactly != nil && !tolerate(r.Exactly.Tolerations) ||
				slices.ContainsFunc(r.FirstAvailable, func(s resourceapi.DeviceSubRequest) bool { return !tolerate(s.Tolerations) })
		})
	})
}

// tolerate reports whether one of the tolerations is for the taint of devices out of service.
func tolerate(tolerations []resourceapi.DeviceToleration) bool {
	taint := resourceapi.DeviceTaint{Key: v1alpha1.TaintMaintenance, Effect: resourceapi.DeviceTaintEffectNoSchedule}
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool { return resourceclaim.ToleratesTaint(t, taint) })
}
