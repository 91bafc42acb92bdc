package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	if err := s.connection.lock(ctx); err != nil {
		return fmt.Errorf("end the connection to the driver: %w", err)
	}
	defer s.connection.unlock()
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

// Users returns the ids of the compute and graphics processes on the GPU and its MIG devices, in ascending order. Processes
// that only have the driver open are not included, and processes of other PID namespaces are not visible.
func (s *Session) Users(ctx context.Context, gpuName string) ([]int, error) {
	processes, err := s.Processes(ctx, gpuName)
	var pids []int
	for _, p := range processes {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// Processes returns the compute and graphics processes on the GPU and its MIG devices, clients of MPS daemons included, each
// with its GPU instance. The driver reports only processes of the caller's PID namespace. A driver that cannot report compute
// processes is an error.
func (s *Session) Processes(ctx context.Context, gpuName string) ([]gpu.Process, error) {
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) ([]gpu.Process, error) {
		var a calls
		found := query(&a, "nvmlDeviceGetComputeRunningProcesses", f.handle.GetComputeRunningProcesses)
		graphics, _ := queryOptional(&a, "nvmlDeviceGetGraphicsRunningProcesses", f.handle.GetGraphicsRunningProcesses)
		clients, _ := queryOptional(&a, "nvmlDeviceGetMPSComputeRunningProcesses", f.handle.GetMPSComputeRunningProcesses)
		var all []gpu.Process
		for _, p := range slices.Concat(found, graphics, clients) {
			all = append(all, gpu.Process{PID: int(p.Pid), GI: int(int32(p.GpuInstanceId))}) //nolint:gosec // all bits set is NoInstance
		}
		return all, a.err
	})
}
