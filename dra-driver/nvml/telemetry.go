package nvml

import (
	"context"
	"errors"
	"maps"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Measure reads the telemetry of the GPU and of its MIG devices. What the hardware, the driver or the
// MIG mode does not offer is left out; so is what could not be read, and the error says why. An error
// that wraps gpu.ErrLost or gpu.ErrNoDriver ends the reading.
//
// The connection is held for one question at a time, so that a new driver does not have to wait for
// all of them. A call that hangs in the driver cannot be interrupted: Measure then hangs, too.
func (s *Session) Measure(ctx context.Context, gpuName string) (gpu.Measurement, error) {
	known, err := on(ctx, s, gpuName, func(f *facts) (*facts, error) { return f, nil })
	if err != nil {
		return gpu.Measurement{}, err
	}
	p := &probe{session: s, gpu: known}
	m := gpu.Measurement{GPU: p.read(ctx, known.handle, questions())}
	if p.carved(ctx) {
		m.Instances = p.instances(ctx)
	}
	return m, errors.Join(p.errs...)
}

// probe puts questions to one GPU, as long as the connection is the one that it began with.
type probe struct {
	session *Session
	gpu     *facts
	// ended is set when nothing more can be asked.
	ended bool
	errs  []error
}

// hold calls f while the connection stays as it is.
func (p *probe) hold(ctx context.Context, f func() error) {
	if p.ended {
		return
	}
	_, err := on(ctx, p.session, p.gpu.name, func(now *facts) (done, error) {
		if now != p.gpu {
			return done{}, gpu.ErrNoDriver
		}
		return done{}, f()
	})
	if err == nil {
		return
	}
	p.errs = append(p.errs, err)
	p.ended = ctx.Err() != nil || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrNoDriver)
}

// read puts the questions to the GPU or to one of its MIG devices.
func (p *probe) read(ctx context.Context, device nvml.Device, questions []question) gpu.Telemetry {
	t := gpu.Telemetry{}
	for _, q := range questions {
		p.hold(ctx, func() error {
			var a answers
			values, _ := askIfMeasured(&a, q.call, func() (gpu.Telemetry, nvml.Return) { return q.ask(device) })
			maps.Copy(t, values)
			return a.err
		})
	}
	return t
}

// askIfMeasured is askIfAny for what a sensor or a driver may not offer and for a MIG device that may be
// gone.
func askIfMeasured[T any](a *answers, call string, question func() (T, nvml.Return)) (T, bool) {
	return askUnless(a, call, question, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT,
		nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA)
}

// carved asks whether MIG is on.
func (p *probe) carved(ctx context.Context) bool {
	var on bool
	p.hold(ctx, func() error {
		var a answers
		on = p.gpu.modes(&a).current == gpu.ModeEnabled
		return a.err
	})
	return on
}

// instances reads the MIG devices. One that is destroyed meanwhile is left out.
func (p *probe) instances(ctx context.Context) map[string]gpu.Telemetry {
	all := map[string]gpu.Telemetry{}
	for _, mig := range p.parts(ctx) {
		var uuid string
		p.hold(ctx, func() error {
			var a answers
			uuid, _ = askIfMeasured(&a, "nvmlDeviceGetUUID of a MIG device", mig.GetUUID)
			return a.err
		})
		if uuid == "" {
			continue
		}
		if t := p.read(ctx, mig, partQuestions()); len(t) > 0 {
			all[uuid] = t
		}
	}
	return all
}

// parts returns the handles of the MIG devices, whose numbers have gaps.
func (p *probe) parts(ctx context.Context) []nvml.Device {
	var all []nvml.Device
	p.hold(ctx, func() error {
		var a answers
		for index := range ask(&a, "nvmlDeviceGetMaxMigDeviceCount", p.gpu.handle.GetMaxMigDeviceCount) {
			mig, has := askIfMeasured(&a, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
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
