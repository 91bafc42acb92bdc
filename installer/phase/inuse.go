package phase

import "github.com/tessera-gpu/tessera/api/v1alpha1"

// A driver's pod that is replaced on a node in service cannot start if its image reloads the modules: pods use them. Images of NVIDIA since January 2026
// keep modules that the same driver loaded (_should_skip_kernel_module_reload in nvidia-driver of gpu-driver-container, from commit 85678ce); precompiled and
// older images do not, and fail. The node then stays in service with the loaded modules until the rollout grants a drain. After the drain kubelet's next
// attempt starts the pod.

// inUse reports whether the desired driver's pod cannot start because the loaded driver, or its files, are in use.
func (v *view) inUse() bool {
	reason := v.Driver.Reason
	return v.driver != "" && v.Driver.State == PodFailed && v.Driver.Digest == v.driver && (reason == ReasonModuleInUse || reason == ReasonRootBusy)
}

// restarts reports whether the rollout has granted the drain for the driver's pod.
func (v *view) restarts() bool {
	return v.inUse() && v.Driver.UID != "" && v.Spec.DriverRestart == v.Driver.UID
}

// driverRestart returns the driver's pod for which a drain is requested or under way.
func (v *view) driverRestart() string {
	if v.inUse() && (v.Node.Labels.Agent != "" && v.loaded() || v.restarts()) {
		return v.Driver.UID
	}
	return ""
}

// inUseRules keep a node in service whose driver's pod cannot start, and return it to service after a drain that was given up.
var inUseRules = []rule{
	{"return without a restart", func(v *view) bool { return v.staysInUse() && v.closed() }, func(v *view) Decision { return match(v, restore) }},
	{"driver in use", (*view).staysInUse, func(v *view) Decision {
		d := Decision{Phase: v1alpha1.PhaseFailed, Reason: ReasonDriverInUse, Action: Wait, Message: "the driver container cannot start while the GPUs are in use" +
			v.Driver.why() + "; pods keep their GPUs. The node is drained, and the driver starts, when the upgrade policy permits it (auto, window, " +
			"maxParallel, maxUnavailable); with auto: false, set the annotation " + v1alpha1.AnnotationResume + " on the policy"}
		if len(v.Drain.Holders) > 0 {
			d.Message += "; pods that use the GPUs: " + names(v.Drain.Holders)
		}
		if a := v.Status.Attempt; a != nil && a.Digest == v.driver && a.Undisturbed() {
			d.Message += "; the last drain was given up: " + a.Message
		}
		return d
	}},
}

// staysInUse reports whether the driver's pod cannot start, and the node keeps its pods and its agent. An agent that does not run cannot accept claims
// again, so a maintenance is not ended.
func (v *view) staysInUse() bool {
	return v.inUse() && v.loaded() && v.Node.Labels.Agent != "" && (v.Agent.State == PodReady || !v.closed())
}
