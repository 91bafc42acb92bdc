package nvml

import (
	"context"
	"errors"
	"maps"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Measure reads the telemetry of the GPU and of its MIG devices. What the hardware, the driver or the MIG mode does not
// support is left out; so is what could not be read, and the error has the reasons. An error that wraps gpu.ErrLost or
// gpu.ErrNoDriver ended the reading.
//
// The connection is held for one query at a time, so that a driver update does not wait for all of them. A call that
// hangs in the driver cannot be interrupted: Measure then hangs too.
func (s *Session) Measure(ctx context.Context, gpuName string) (gpu.Measurement, error) {
	known, err := withGPU(ctx, s, gpuName, func(f *gpuInfo) (*gpuInfo, error) { return f, nil })
	if err != nil {
		return gpu.Measurement{}, err
	}
	p := &probe{session: s, gpu: known}
	m := gpu.Measurement{GPU: p.read(ctx, known.handle, gpuSensors())}
	if p.migEnabled(ctx) {
		m.Instances = p.instances(ctx)
	}
	return m, errors.Join(p.errs...)
}

// probe makes queries to one GPU as long as the connection is the one that it started with.
type probe struct {
	session *Session
	gpu     *gpuInfo
	// ended is set when no further query is possible.
	ended bool
	errs  []error
}

// withConnection calls f if the connection is still the one that the probe started with, and keeps it from changing
// meanwhile. Errors are appended to errs.
func (p *probe) withConnection(ctx context.Context, f func() error) {
	if p.ended {
		return
	}
	_, err := withGPU(ctx, p.session, p.gpu.name, func(now *gpuInfo) (noValue, error) {
		if now != p.gpu {
			return noValue{}, gpu.ErrNoDriver
		}
		return noValue{}, f()
	})
	if err == nil {
		return
	}
	p.errs = append(p.errs, err)
	p.ended = ctx.Err() != nil || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNoDriver)
}

// read reads the sensors of the GPU or of one of its MIG devices.
func (p *probe) read(ctx context.Context, device nvml.Device, questions []sensor) gpu.Telemetry {
	t := gpu.Telemetry{}
	for _, q := range questions {
		p.withConnection(ctx, func() error {
			var a calls
			values, _ := querySensor(&a, q.call, func() (gpu.Telemetry, nvml.Return) { return q.read(device) })
			maps.Copy(t, values)
			return a.err
		})
	}
	return t
}

// querySensor is queryOptional for a sensor that the GPU or the driver may not support and a MIG device that may no
// longer exist.
func querySensor[T any](a *calls, call string, question func() (T, nvml.Return)) (T, bool) {
	return queryExcept(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT,
		nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA)
}

// migEnabled reports whether MIG mode is enabled.
func (p *probe) migEnabled(ctx context.Context) bool {
	var on bool
	p.withConnection(ctx, func() error {
		var a calls
		on = p.gpu.modes(&a).current == gpu.ModeEnabled
		return a.err
	})
	return on
}

// instances reads the MIG devices by UUID. One that is destroyed meanwhile is left out.
func (p *probe) instances(ctx context.Context) map[string]gpu.Telemetry {
	all := map[string]gpu.Telemetry{}
	for _, mig := range p.migDevices(ctx) {
		var uuid string
		p.withConnection(ctx, func() error {
			var a calls
			uuid, _ = querySensor(&a, "nvmlDeviceGetUUID of a MIG device", mig.GetUUID)
			return a.err
		})
		if uuid == "" {
			continue
		}
		if t := p.read(ctx, mig, migSensors()); len(t) > 0 {
			all[uuid] = t
		}
	}
	return all
}

// migDevices returns the handles of the MIG devices, whose indexes have gaps.
func (p *probe) migDevices(ctx context.Context) []nvml.Device {
	var all []nvml.Device
	p.withConnection(ctx, func() error {
		var a calls
		for index := range query(&a, "nvmlDeviceGetMaxMigDeviceCount", p.gpu.handle.GetMaxMigDeviceCount) {
			mig, has := querySensor(&a, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
				return p.gpu.handle.GetMigDeviceHandleByIndex(index)
			})
			if has {
				all = append(all, mig)
			}
		}
		return a.err
	})
	return all
}
