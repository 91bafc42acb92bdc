package gpunode

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
)

// maxFaults is the maximum number of faults in a GPUNode.
const maxFaults = 64

// Faults returns the stored faults that are in effect with severity Warning or worse, the worst first, up to maxFaults. Faults of GPUs that
// the node does not have at the moment are included: a GPU that does not respond, or was not read yet, is not healthy. Faults of the driver
// are not: they are no property of a GPU, and the status without a driver version shows them. The result does not change while the same
// faults are in effect.
func Faults(stored []gpu.Fault, rules gpu.Rules) []v1alpha1.GPUFault {
	all := gpu.Health{Faults: stored}.InEffect()
	all = slices.DeleteFunc(all, func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver })
	var faults []v1alpha1.GPUFault
	for _, f := range all[:min(len(all), maxFaults)] {
		one := v1alpha1.GPUFault{
			GPU: f.GPU, UUID: f.UUID, Signal: string(f.Signal), XID: int32(f.XID), //nolint:gosec // XIDs are small
			Severity: f.Severity.String(), Remedy: f.Remedy.String(), Message: diagnosis.Advice(f, rules),
			Since: metav1.NewTime(f.Since.Truncate(time.Second)), BootID: f.Boot,
		}
		if f.Placement != (gpu.Placement{}) {
			one.Device = wire.DeviceName(gpu.Device{GPU: f.GPU, Use: gpu.Use{Shape: gpu.MIG, Placement: f.Placement}})
		}
		faults = append(faults, one)
	}
	return faults
}
