package gpunode

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

func TestHardwareStatus(t *testing.T) {
	node := gputest.Node(t, "h100x2")
	got := HardwareStatus(node)
	if got.GPUs != 2 || got.Product != node.GPUs[0].Product || got.ComputeCapability != "9.0" || !got.MIGCapable || got.DriverVersion == "" {
		t.Errorf("%+v", got)
	}
	if got := HardwareStatus(gputest.Node(t, "a30x4l40sx4")); got.GPUs != 8 || got.Product != "NVIDIA A30, NVIDIA L40S" {
		t.Errorf("mixed: %+v", got)
	}
	node.GPUs[1].Mode = 3 - node.GPUs[1].Mode
	if got := HardwareStatus(node); got.MIGMode != mixed || !got.MIGPending {
		t.Errorf("one GPU in another MIG mode: %+v", got)
	}
	node.GPUs[0].Lost = true
	if got := HardwareStatus(node); got.GPUs != 1 || got.MIGMode == mixed {
		t.Errorf("one GPU lost: %+v", got)
	}
	node.GPUs[1].Lost = true
	if diff := cmp.Diff(v1alpha1.AgentStatus{}, HardwareStatus(node)); diff != "" {
		t.Errorf("no GPU responds (-want +got):\n%s", diff)
	}
}
