package cdi

import (
	"fmt"

	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The default paths of the CUDA driver at which clients find an MPS daemon.
const (
	mpsPipes  = "/tmp/nvidia-mps"
	mpsMemory = "/dev/shm"
)

// client returns the edits that make the processes of a container clients of the device's MPS daemon: its pipes, the
// memory that it shares with them, and their limits (the CUDA_MPS_ variables of NVIDIA's Multi-Process Service). A
// daemon of one claim only applies the limits itself, so that its clients need no variables. It can serve several GPUs
// with different limits, and a container can have only some of them: a variable would have to name all by the daemon's
// positions.
func client(p prepare.Prepared) cdispec.ContainerEdits {
	if p.Daemon == nil {
		return cdispec.ContainerEdits{}
	}
	options := []string{"rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"}
	edits := cdispec.ContainerEdits{
		Env: []string{"CUDA_MPS_PIPE_DIRECTORY=" + mpsPipes},
		Mounts: []*cdispec.Mount{
			{HostPath: p.Daemon.Folders.Pipe, ContainerPath: mpsPipes, Options: options},
			{HostPath: p.Daemon.Folders.Shm, ContainerPath: mpsMemory, Options: options},
		},
	}
	if p.Use.Shape != gpu.MPS {
		return edits
	}
	if percentage := p.Daemon.ActiveThreadPercentage; percentage > 0 {
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", percentage))
	}
	if memory := p.Daemon.PinnedMemoryBytes; memory > 0 {
		edits.Env = append(edits.Env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", memory>>20))
	}
	return edits
}
