package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Disconnected calls f while this process has no GPU open, which a reset requires: it waits for the calls in progress,
// ends the connection, calls f and connects again, also if f fails or ctx ends. Other calls wait meanwhile and continue
// with the new connection, WatchEvents included; Measure ends with gpu.ErrNoDriver. f must not call the session.
//
// The error is that of f, or that there is no driver afterwards; then the session stays closed and Reopen is needed.
// Without a connection at the start, f is not called and the error wraps gpu.ErrNoDriver. If ctx ends while a call hangs
// in the driver, f is not called and the connection stays; other calls continue meanwhile.
func (s *Session) Disconnected(ctx context.Context, f func(context.Context) error) error {
	if err := s.lockConnection(ctx); err != nil {
		return fmt.Errorf("end the connection to the driver: %w", err)
	}
	defer s.mu.Unlock()
	if s.node == nil {
		return gpu.ErrNoDriver
	}
	s.close()
	err := f(ctx)
	if opened := s.open(context.WithoutCancel(ctx)); opened != nil {
		err = errors.Join(err, fmt.Errorf("reopen the driver: %w", opened))
	}
	return err
}

// Users returns the ids of the compute and graphics processes on the GPU and its MIG devices, in ascending order, in the
// host's PID namespace. Processes that only have the driver open are not included.
func (s *Session) Users(ctx context.Context, gpuName string) ([]int, error) {
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) ([]int, error) {
		var a calls
		var pids []int
		for _, list := range []struct {
			call  string
			query func() ([]nvml.ProcessInfo, nvml.Return)
		}{
			{"nvmlDeviceGetComputeRunningProcesses", f.handle.GetComputeRunningProcesses},
			{"nvmlDeviceGetGraphicsRunningProcesses", f.handle.GetGraphicsRunningProcesses},
			{"nvmlDeviceGetMPSComputeRunningProcesses", f.handle.GetMPSComputeRunningProcesses},
		} {
			processes, _ := queryOptional(&a, list.call, list.query)
			for _, p := range processes {
				pids = append(pids, int(p.Pid))
			}
		}
		slices.Sort(pids)
		return slices.Compact(pids), a.err
	})
}
