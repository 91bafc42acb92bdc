package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Create creates the GPU instance at exactly the placement, without a compute instance. After an error the instance may
// exist nevertheless; List returns it.
func (s *Session) Create(ctx context.Context, gpuName string, p gpu.Placement) (gpu.Instance, error) {
	defer s.changes.begin()()
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) (gpu.Instance, error) { return f.create(p) })
}

func (f *gpuInfo) create(p gpu.Placement) (gpu.Instance, error) {
	if _, err := f.gpu.Geometry.Legal(p); err != nil {
		return gpu.Instance{}, err
	}
	// A legal placement is of a profile that the GPU reported; the call uses only its id.
	profile := nvml.GpuInstanceProfileInfo{Id: uint32(p.Profile)}
	placement := nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(p.Size)}
	gi, code := f.handle.CreateGpuInstanceWithPlacement(&profile, &placement)
	if err := newCallError("nvmlDeviceCreateGpuInstanceWithPlacement", code); err != nil {
		return gpu.Instance{}, err
	}
	return f.instance(gi)
}

// Complete creates the compute instance that spans the GPU instance and returns the MIG device. After an error the
// compute instance may exist nevertheless; List returns it.
func (s *Session) Complete(ctx context.Context, i gpu.Instance) (gpu.Instance, error) {
	defer s.changes.begin()()
	return withGPU(ctx, s, i.GPU, func(f *gpuInfo) (gpu.Instance, error) { return f.complete(i) })
}

func (f *gpuInfo) complete(i gpu.Instance) (gpu.Instance, error) {
	var a calls
	gi := query(&a, "nvmlDeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) { return f.handle.GetGpuInstanceById(i.GI) })
	if a.err != nil {
		return gpu.Instance{}, a.err
	}
	found, err := f.instance(gi)
	if err != nil {
		return gpu.Instance{}, err
	}
	if found.Placement != i.Placement {
		return gpu.Instance{}, fmt.Errorf("GPU instance %d was replaced by another, with %v", i.GI, found.Placement)
	}
	fitting := computeProfiles(&a, gi)
	if a.err != nil {
		return gpu.Instance{}, a.err
	}
	all, err := spanning(fitting)
	if err != nil {
		return gpu.Instance{}, err
	}
	if _, code := gi.CreateComputeInstance(&all); code != nvml.SUCCESS {
		return gpu.Instance{}, newCallError("nvmlGpuInstanceCreateComputeInstance", code)
	}
	return f.instance(gi)
}

// Destroy destroys the compute instances of the instance and then the GPU instance. An instance that no longer exists is
// not an error, and neither is an id that belongs to another instance by now: the driver reuses ids, so the placement
// and, where it is known, the UUID must match before anything is destroyed. After an error that wraps gpu.ErrBusy, the
// GPU instance may exist without its compute instance.
func (s *Session) Destroy(ctx context.Context, i gpu.Instance) error {
	defer s.changes.begin()()
	_, err := withGPU(ctx, s, i.GPU, func(f *gpuInfo) (noValue, error) { return noValue{}, f.destroy(i) })
	return err
}

func (f *gpuInfo) destroy(i gpu.Instance) error {
	var a calls
	if f.modes(&a).current != gpu.ModeEnabled {
		return a.err
	}
	gi := query(&a, "nvmlDeviceGetGpuInstanceById", func() (nvml.GpuInstance, nvml.Return) { return f.handle.GetGpuInstanceById(i.GI) })
	switch {
	case failedWith(a.err, nvml.ERROR_NOT_FOUND):
		return nil
	case a.err != nil:
		return a.err
	}
	found, err := f.instance(gi)
	if err != nil {
		return err
	}
	if found.Placement != i.Placement || (i.UUID != "" && found.UUID != "" && found.UUID != i.UUID) {
		return nil
	}
	parts := computeInstances(&a, gi)
	if a.err != nil {
		return a.err
	}
	for _, part := range parts {
		if err := newCallError("nvmlComputeInstanceDestroy", part.handle.Destroy()); err != nil {
			return err
		}
	}
	return newCallError("nvmlGpuInstanceDestroy", gi.Destroy())
}
