package nvml

import (
	"context"
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func TestSetMode(t *testing.T) {
	s, _ := open(t, "mixed16")
	node, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range node.GPUs {
		for _, mode := range []gpu.Mode{gpu.ModeEnabled, gpu.ModeDisabled} {
			err := s.SetMode(t.Context(), g.Name(), mode)
			switch {
			case g.TogglesMIG() || g.Mode == mode:
				if err != nil {
					t.Errorf("%s: set %v: %v", g.Product, mode, err)
				}
			case !errors.Is(err, gpu.ErrUnsupported):
				t.Errorf("%s: set %v: got %v, want unsupported", g.Product, mode, err)
			}
			got, err := s.Mode(t.Context(), g.Name())
			want := g.Mode
			if g.TogglesMIG() {
				want = mode
			}
			if err != nil || got != want {
				t.Errorf("%s: after setting %v: got %v, %v, want %v", g.Product, mode, got, err, want)
			}
		}
	}
	after, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range after.GPUs {
		if g.Pending != g.Mode {
			t.Errorf("%s: the mode is %v, and %v stays pending", g.Product, g.Mode, g.Pending)
		}
	}
}

// A change of the mode excludes every other call, and a call that hangs on another GPU does not prevent it.
func TestSetModeExcludesCalls(t *testing.T) {
	s := New(Config{})
	unlock, err := s.excludeCalls(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*pollDelay)
	defer cancel()
	if s.useConnection(ctx) == nil {
		t.Fatal("another call is possible during the change")
	}
	unlock()
	must(t, s.useConnection(t.Context())) // a call that hangs
	unlock, err = s.excludeCalls(t.Context())
	if err != nil {
		t.Fatalf("while another call hangs: %v", err)
	}
	unlock()
	s.leaveConnection()
	for name, g := range map[string]*gate{"connection": &s.connection, "modes": &s.modes} {
		if !g.mu.TryLock() {
			t.Errorf("the %s stay locked", name)
		}
	}
}

// The wait for events, of which one is always in progress, does not delay a change of the mode.
func TestSetModeDuringWaitForEvents(t *testing.T) {
	s, _ := open(t, "h100x2")
	g := partitionable(t, s)[0]
	watch := &eventWatch{session: s}
	must(t, watch.withConnection(t.Context(), func() error {
		must(t, watch.start(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), exclusionTimeout)
		defer cancel()
		return s.SetMode(ctx, g.Name(), gpu.ModeEnabled)
	}))
}

func TestSetModeWithInstances(t *testing.T) {
	s, _ := open(t, "h100x2")
	g := partitionable(t, s)[0]
	made := carve(t, s, g.Name(), at(19, 0, 1))
	if err := s.SetMode(t.Context(), g.Name(), gpu.ModeDisabled); !errors.Is(err, gpu.ErrBusy) {
		t.Errorf("got %v, want busy", err)
	}
	if left := list(t, s, g.Name()); len(left) != 1 || left[0] != made {
		t.Errorf("left: %v", left)
	}
}

// switchboard is a GPU on which a MIG mode is accepted but does not become active.
type switchboard struct {
	mock.Device
	current, pending int
	activation       nvml.Return
	sets             int
	// refuseFrom is the number of the first call that fails.
	refuseFrom int
}

func newSwitchboard(activation nvml.Return) *switchboard {
	s := &switchboard{activation: activation, refuseFrom: 99}
	s.GetMigModeFunc = func() (int, int, nvml.Return) { return s.current, s.pending, nvml.SUCCESS }
	s.SetMigModeFunc = func(mode int) (nvml.Return, nvml.Return) {
		if s.sets++; s.sets >= s.refuseFrom {
			return nvml.SUCCESS, nvml.ERROR_NO_PERMISSION
		}
		s.pending = mode
		if mode == s.current {
			return nvml.SUCCESS, nvml.SUCCESS
		}
		return s.activation, nvml.SUCCESS
	}
	return s
}

// The call succeeds without the mode being in effect; its activation status has the reason.
func TestSetModeChecksActivation(t *testing.T) {
	tests := map[string]struct {
		activation nvml.Return
		want       error
	}{
		"a client is in the way":      {nvml.ERROR_IN_USE, gpu.ErrBusy},
		"a virtual machine":           {nvml.ERROR_RESET_REQUIRED, gpu.ErrUnsupported},
		"pending without any reason":  {nvml.SUCCESS, gpu.ErrUnsupported},
		"lost when it was to come up": {nvml.ERROR_GPU_IS_LOST, gpu.ErrLost},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := newSwitchboard(test.activation)
			f := &gpuInfo{handle: d, gpu: gputest.Node(t, "h100x2").GPUs[0]}
			if _, err := f.setMode(gpu.ModeEnabled); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if d.pending != nvml.DEVICE_MIG_DISABLE {
				t.Error("the mode stays pending for the next reset")
			}
		})
	}
	t.Run("what is pending cannot be taken back", func(t *testing.T) {
		d := newSwitchboard(nvml.ERROR_IN_USE)
		d.refuseFrom = 2
		f := &gpuInfo{handle: d, gpu: gputest.Node(t, "h100x2").GPUs[0]}
		_, err := f.setMode(gpu.ModeEnabled)
		if !errors.Is(err, gpu.ErrBusy) || !failedWith(err, nvml.ERROR_IN_USE) {
			t.Errorf("got %v, want busy, and that the mode stays pending", err)
		}
	})
	t.Run("before Hopper nothing is tried", func(t *testing.T) {
		d := newSwitchboard(nvml.SUCCESS)
		f := &gpuInfo{handle: d, gpu: gputest.Node(t, "a100x8").GPUs[0]}
		if _, err := f.setMode(gpu.ModeEnabled); !errors.Is(err, gpu.ErrUnsupported) || d.sets != 0 {
			t.Errorf("got %v after %d calls, want unsupported after none", err, d.sets)
		}
	})
	t.Run("an administrator's pending mode is left alone", func(t *testing.T) {
		d := newSwitchboard(nvml.SUCCESS)
		d.pending = nvml.DEVICE_MIG_ENABLE
		f := &gpuInfo{handle: d, gpu: gputest.Node(t, "h100x2").GPUs[0]}
		if _, err := f.setMode(gpu.ModeDisabled); err != nil || d.sets != 0 {
			t.Errorf("got %v after %d calls, want nothing to do", err, d.sets)
		}
	})
}

func TestSetModeRefused(t *testing.T) {
	s, dir := open(t, "h100x2")
	name := gputest.Node(t, "h100x2").GPUs[0].Name()
	if err := fakegpu.Fail(dir, "nvmlDeviceSetMigMode", uint32(nvml.ERROR_NO_PERMISSION), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.SetMode(t.Context(), name, gpu.ModeEnabled); !failedWith(err, nvml.ERROR_NO_PERMISSION) {
		t.Errorf("got %v, want no permission", err)
	}
}

func TestSetComputeMode(t *testing.T) {
	s, dir := open(t, "h100x2")
	name := gputest.Node(t, "h100x2").GPUs[1].Name()
	set := func(m gpu.ComputeMode, want fakegpu.ComputeMode) {
		t.Helper()
		if err := s.SetComputeMode(t.Context(), name, m); err != nil {
			t.Errorf("set %v: %v", m, err)
		}
		state, err := fakegpu.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if state.GPUs[1].ComputeMode != want || state.GPUs[0].ComputeMode != fakegpu.ComputeDefault {
			t.Errorf("after %v: got %+v", m, state.GPUs)
		}
	}
	set(gpu.ComputeExclusive, fakegpu.ComputeExclusiveProcess)
	set(gpu.ComputeExclusive, fakegpu.ComputeExclusiveProcess)
	if err := fakegpu.Fail(dir, "nvmlDeviceSetComputeMode", uint32(nvml.ERROR_NO_PERMISSION), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.SetComputeMode(t.Context(), name, gpu.ComputeDefault); !failedWith(err, nvml.ERROR_NO_PERMISSION) {
		t.Errorf("got %v, want no permission", err)
	}
	set(gpu.ComputeDefault, fakegpu.ComputeDefault)

	set(gpu.ComputeExclusive, fakegpu.ComputeExclusiveProcess)
	if err := s.SetMode(t.Context(), name, gpu.ModeEnabled); err != nil {
		t.Fatal(err)
	}
	set(gpu.ComputeDefault, fakegpu.ComputeDefault) // the mode in effect in MIG mode
	if err := s.SetComputeMode(t.Context(), name, gpu.ComputeExclusive); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("in MIG mode: got %v, want unsupported", err)
	}
	if err := s.SetComputeMode(t.Context(), "gpu-of-another-node", gpu.ComputeExclusive); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("a GPU that is not there: got %v, want lost", err)
	}
}

// Where the MIG mode cannot be changed without a reset, only the shapes of the present mode are offered: for the virtual GPU of a guest from the start, and
// otherwise after the first refusal.
func TestModeIsFixed(t *testing.T) {
	offered := func(t *testing.T, s *Session) bool {
		t.Helper()
		node := gpu.Node{GPUs: []gpu.GPU{read(t, s)}}
		return len(node.Devices(gpu.Offer{Shapes: []gpu.Shape{gpu.MIG}})) > 0
	}
	t.Run("virtual GPU", func(t *testing.T) {
		s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
		must(t, fakegpu.Virtualize(dir, 0, fakegpu.VirtualGPU, false))
		must(t, s.Reopen(t.Context()))
		if offered(t, s) {
			t.Error("MIG devices are offered")
		}
		if err := s.SetMode(t.Context(), read(t, s).Name(), gpu.ModeEnabled); !errors.Is(err, gpu.ErrUnsupported) {
			t.Errorf("SetMode: %v", err)
		}
	})
	t.Run("passthrough", func(t *testing.T) {
		s, dir := install(t, fakegpu.Spec{Node: nodeName, Machine: "h100x2"})
		must(t, fakegpu.Virtualize(dir, 0, fakegpu.Passthrough, false))
		must(t, s.Reopen(t.Context()))
		if !offered(t, s) {
			t.Fatal("no MIG devices are offered")
		}
		must(t, fakegpu.Virtualize(dir, 0, fakegpu.Passthrough, true))
		name := read(t, s).Name()
		for range 2 {
			if err := s.SetMode(t.Context(), name, gpu.ModeEnabled); !errors.Is(err, gpu.ErrUnsupported) {
				t.Errorf("SetMode: %v", err)
			}
			if offered(t, s) {
				t.Error("MIG devices are offered after the refusal")
			}
			must(t, s.Reopen(t.Context()))
		}
	})
	t.Run("no virtualization", func(t *testing.T) {
		s, _ := open(t, "h100x2")
		if !offered(t, s) {
			t.Error("no MIG devices are offered")
		}
	})
}
