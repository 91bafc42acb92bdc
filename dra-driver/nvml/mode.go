package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// modes is the present MIG mode and the mode after the next reset.
type modes struct{ current, pending gpu.Mode }

func (f *gpuInfo) modes(a *calls) modes {
	got, has := queryOptional(a, "nvmlDeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, code := f.handle.GetMigMode()
		return modes{modeOf(current), modeOf(pending)}, code
	})
	if !has {
		return modes{gpu.ModeUnsupported, gpu.ModeUnsupported}
	}
	return got
}

func modeOf(number int) gpu.Mode {
	if number == nvml.DEVICE_MIG_ENABLE {
		return gpu.ModeEnabled
	}
	return gpu.ModeDisabled
}

func migModeNumber(m gpu.Mode) int {
	if m == gpu.ModeEnabled {
		return nvml.DEVICE_MIG_ENABLE
	}
	return nvml.DEVICE_MIG_DISABLE
}

// Mode returns the MIG mode that is in effect on the GPU.
func (s *Session) Mode(ctx context.Context, gpuName string) (gpu.Mode, error) {
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) (gpu.Mode, error) {
		var a calls
		return f.modes(&a).current, a.err
	})
}

// Geometry returns the MIG profiles that the GPU has in its present mode; nil for a GPU without MIG.
func (s *Session) Geometry(ctx context.Context, gpuName string) (*gpu.Geometry, error) {
	return withGPU(ctx, s, gpuName, func(f *gpuInfo) (*gpu.Geometry, error) { return f.gpu.Geometry, nil })
}

// exclusionTimeout is how long SetMode waits for the calls in progress. A call that takes longer hangs, probably on another GPU.
const exclusionTimeout = 3 * time.Second

// SetMode sets the MIG mode and returns nil only if the mode is in effect. Other calls wait meanwhile: none of this
// process reads the GPU in the middle of the change, except one that hangs. The error wraps gpu.ErrBusy if another program has the GPU open, which
// prevents the change (nvmlDeviceSetMigMode: NVML_ERROR_IN_USE), and gpu.ErrUnsupported if the GPU would need a reset, which is the case before Hopper and
// in some virtual machines; no change stays pending then, and Read reports MIGFixed.
func (s *Session) SetMode(ctx context.Context, gpuName string, mode gpu.Mode) error {
	defer s.changes.begin()()
	if err := s.connection.use(ctx); err != nil {
		return err
	}
	defer s.connection.leave()
	unlock, err := s.excludeCalls(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := s.find(gpuName)
	if err != nil {
		return err
	}
	known := d.info.Load()
	changed, err := known.setMode(mode)
	if errors.Is(err, gpu.ErrUnsupported) && known.gpu.TogglesMIG() {
		s.refused.add(known.name)
		now := *known
		now.gpu.MIGFixed = true
		d.info.Store(&now)
	}
	if !changed {
		return err
	}
	return s.readProfilesAgain(ctx, d, known)
}

// readProfilesAgain reads the MIG profiles after a change of the MIG mode. They can have other sizes than before.
func (s *Session) readProfilesAgain(ctx context.Context, d *device, before *gpuInfo) error {
	var a calls
	now := *before
	s.readProfiles(ctx, &a, &now)
	if a.err == nil {
		now.omitted = append(now.omitted, a.omitted...)
		d.info.Store(&now)
	}
	return a.err
}

// excludeCalls locks the modes, or uses them while a call hangs, so that a GPU that hangs delays no other.
func (s *Session) excludeCalls(ctx context.Context) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, exclusionTimeout)
	defer cancel()
	if s.modes.lock(limited) == nil {
		return s.modes.unlock, nil
	}
	return s.modes.leave, s.modes.use(ctx)
}

// setMode reports whether the mode was changed; if so, err is nil.
func (f *gpuInfo) setMode(mode gpu.Mode) (changed bool, err error) {
	var a calls
	before := f.modes(&a)
	switch {
	case a.err != nil:
		return false, a.err
	case before.current == gpu.ModeUnsupported || mode == gpu.ModeUnsupported:
		return false, fmt.Errorf("the GPU does not support MIG: %w", gpu.ErrUnsupported)
	case before.current == mode:
		return false, nil
	case !f.gpu.TogglesMIG():
		return false, f.needsReset(mode)
	}
	activation, code := f.handle.SetMigMode(migModeNumber(mode))
	if err := newCallError("nvmlDeviceSetMigMode", code); err != nil {
		return false, err
	}
	after := f.modes(&a)
	if a.err != nil || after.current == mode {
		return a.err == nil, a.err
	}
	err = newCallError("activation by nvmlDeviceSetMigMode", activation)
	if err == nil || activation == nvml.ERROR_RESET_REQUIRED {
		err = f.needsReset(mode)
	}
	// Otherwise the pending mode would take effect at some later reset, unexpectedly.
	if _, code := f.handle.SetMigMode(migModeNumber(before.pending)); code != nvml.SUCCESS {
		return false, fmt.Errorf("%w; the mode stays pending: %w", err, newCallError("nvmlDeviceSetMigMode", code))
	}
	return false, err
}

func (f *gpuInfo) needsReset(mode gpu.Mode) error {
	return fmt.Errorf("a reset of the GPU is needed: drain the node, set the mode (nvidia-smi -i %s -mig %d) and reboot: %w",
		f.gpu.UUID, migModeNumber(mode), gpu.ErrUnsupported)
}

// SetComputeMode sets the compute mode of a GPU and returns nil only if the mode is in effect. It requires root, and the
// mode lasts until it is set again or the driver is reloaded. Processes that already use the GPU stay. The error wraps
// gpu.ErrUnsupported while the GPU is in MIG mode, where the mode is always the default (nvmlDeviceSetComputeMode);
// setting the default there succeeds.
func (s *Session) SetComputeMode(ctx context.Context, gpuName string, m gpu.ComputeMode) error {
	_, err := withGPU(ctx, s, gpuName, func(f *gpuInfo) (noValue, error) {
		return noValue{}, f.setComputeMode(m)
	})
	return err
}

func (f *gpuInfo) setComputeMode(m gpu.ComputeMode) error {
	wanted := nvml.COMPUTEMODE_DEFAULT
	if m == gpu.ComputeExclusive {
		wanted = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	}
	var a calls
	now := query(&a, "nvmlDeviceGetComputeMode", f.handle.GetComputeMode)
	if a.err != nil || now == wanted {
		return a.err
	}
	return newCallError("nvmlDeviceSetComputeMode", f.handle.SetComputeMode(wanted))
}
