package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Disconnected runs f while this process has no GPU open, which a reset needs: it ends the connection once the calls in progress are through,
// runs f and connects again, also when f fails or ctx ends. Other calls wait meanwhile and go on with the new connection, Listen as well;
// Measure ends with gpu.ErrNoDriver. f must not call the session.
//
// The error is that of f, or that there is no driver afterwards; then the session stays closed and Reopen is what helps. Without a
// connection at the start f is not run, and the error wraps gpu.ErrNoDriver. When ctx ends while a call hangs in the driver, f is not run and
// the connection stays; other calls go on meanwhile.
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
		err = errors.Join(err, fmt.Errorf("open the driver again: %w", opened))
	}
	return err
}

// Users returns the ids of the processes that compute or draw on the GPU or on its MIG devices, in ascending order, as the host numbers
// them. A process that only has the driver open is not among them.
func (s *Session) Users(ctx context.Context, gpuName string) ([]int, error) {
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) ([]int, error) {
		var a calls
		var pids []int
		for _, list := range []struct {
			call string
			ask  func() ([]nvml.ProcessInfo, nvml.Return)
		}{
			{"nvmlDeviceGetComputeRunningProcesses", f.handle.GetComputeRunningProcesses},
			{"nvmlDeviceGetGraphicsRunningProcesses", f.handle.GetGraphicsRunningProcesses},
			{"nvmlDeviceGetMPSComputeRunningProcesses", f.handle.GetMPSComputeRunningProcesses},
		} {
			processes, _ := queryOptional(&a, list.call, list.ask)
			for _, p := range processes {
				pids = append(pids, int(p.Pid))
			}
		}
		slices.Sort(pids)
		return slices.Compact(pids), a.err
	})
}
