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

// mostFaults is how many faults are told.
const mostFaults = 64

// Faults returns those of the remembered faults that are not over, Warning or worse, the worst first, at most so many as a GPUNode takes.
// Whether the node has such a GPU does not matter: a board that is dead, or that nobody has looked at yet, is not well because it is not seen.
// That the driver is away is not told: it is nothing about a GPU, and no driver's version says it. Nothing in it changes while the same is wrong.
func Faults(remembered []gpu.Fault, rules gpu.Rules) []v1alpha1.GPUFault {
	all := gpu.Health{Faults: remembered}.InEffect()
	all = slices.DeleteFunc(all, func(f gpu.Fault) bool { return f.Signal == gpu.SignalDriver })
	var told []v1alpha1.GPUFault
	for _, f := range all[:min(len(all), mostFaults)] {
		one := v1alpha1.GPUFault{
			GPU: f.GPU, UUID: f.UUID, Signal: string(f.Signal), XID: int32(f.XID), //nolint:gosec // XIDs are small
			Severity: f.Severity.String(), Remedy: f.Remedy.String(), Message: diagnosis.Advice(f, rules),
			Since: metav1.NewTime(f.Since.Truncate(time.Second)), BootID: f.Boot,
		}
		if f.Placement != (gpu.Placement{}) {
			one.Device = wire.DeviceName(gpu.Device{GPU: f.GPU, Use: gpu.Use{Shape: gpu.MIG, Placement: f.Placement}})
		}
		told = append(told, one)
	}
	return told
}
