package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// health has the quantities that every fake GPU with remapped rows supports.
func health(t gpu.Telemetry) gpu.Telemetry {
	known := gpu.Telemetry{}
	for _, q := range []gpu.Quantity{
		gpu.CorrectedErrors, gpu.UncorrectedErrors, gpu.LifetimeCorrectedErrors, gpu.LifetimeUncorrectedErrors,
		gpu.RemappedCorrected, gpu.RemappedUncorrected, gpu.RemapPending, gpu.RemapFailed, gpu.RetirePending, gpu.MemoryTotal,
	} {
		if value, has := t[q]; has {
			known[q] = value
		}
	}
	return known
}

func TestMeasure(t *testing.T) {
	s, dir := open(t, "h100x2")
	g := gputest.Node(t, "h100x2").GPUs[0]
	for _, err := range []error{
		fakegpu.ECC(dir, 0, 3, 1),
		fakegpu.Remap(dir, 0, fakegpu.Remapping{Correctable: 2, Uncorrectable: 1, Pending: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.Measure(t.Context(), g.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := gpu.Telemetry{
		gpu.CorrectedErrors: 3, gpu.UncorrectedErrors: 1, gpu.LifetimeCorrectedErrors: 3, gpu.LifetimeUncorrectedErrors: 1,
		gpu.RemappedCorrected: 2, gpu.RemappedUncorrected: 1, gpu.RemapPending: 1, gpu.RemapFailed: 0,
		gpu.MemoryTotal: float64(g.MemoryBytes),
	}
	if diff := cmp.Diff(want, health(m.GPU)); diff != "" {
		t.Errorf("what is not offered must be absent (-want +got):\n%s", diff)
	}
	if len(m.Instances) != 0 {
		t.Errorf("MIG devices: %v, want none", m.Instances)
	}

	t.Run("sensors", func(t *testing.T) {
		for _, err := range []error{
			fakegpu.Sense(dir, 0, fakegpu.Readings{
				GPUUtilization: 55, MemoryUtilization: 20, Temperature: 61, Power: 300_500, Energy: 1_234_000, SMClock: 1980, MemoryClock: 2619,
				ClockReasons: nvml.ClocksEventReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksEventReasonGpuIdle,
			}),
			fakegpu.StartProcess(dir, fakegpu.On(0), 1, 5<<30),
			fakegpu.CountLinkErrors(dir, 0, 3, 7),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		m, err := s.Measure(t.Context(), g.Name())
		if err != nil {
			t.Fatal(err)
		}
		want := gpu.Telemetry{
			gpu.Utilization: 0.55, gpu.MemoryUtilization: 0.2, gpu.Temperature: 61, gpu.Power: 300.5, gpu.Energy: 1234,
			gpu.ProcessorClock: 1980e6, gpu.MemoryClock: 2619e6, gpu.MemoryUsed: 5 << 30, gpu.LinkFlitErrors: 7,
			gpu.LimitedByPower: 1, gpu.BrakedByHeat: 1, gpu.LimitedByHeat: 0, gpu.LimitedBySetting: 0, gpu.LimitedByPeers: 0, gpu.Braked: 0, gpu.BrakedBySupply: 0,
		}
		got := gpu.Telemetry{}
		for q := range want {
			if value, has := m.GPU[q]; has {
				got[q] = math.Round(value*1000) / 1000
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Measure (-want +got):\n%s", diff)
		}
	})

	t.Run("before Ampere", func(t *testing.T) {
		s.Close()
		s, dir := open(t, "t4x1")
		if err := fakegpu.Sense(dir, 0, fakegpu.Readings{RetiredSingleBit: 2, RetiredDoubleBit: 1}); err != nil {
			t.Fatal(err)
		}
		g := gputest.Node(t, "t4x1").GPUs[0]
		m, err := s.Measure(t.Context(), g.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, has := m.GPU[gpu.RemapFailed]; has {
			t.Error("a Turing GPU remaps no rows")
		}
		if single, double := m.GPU[gpu.RetiredSingleBit], m.GPU[gpu.RetiredDoubleBit]; single != 2 || double != 1 {
			t.Errorf("retired pages: %v and %v, want 2 and 1", single, double)
		}
		if pending, has := m.GPU[gpu.RetirePending]; !has || pending != 0 {
			t.Errorf("retired pages pending: %v %v, want 0", pending, has)
		}
	})
}

func TestMeasureMIG(t *testing.T) {
	s, _ := open(t, "h100x2")
	g := gputest.Node(t, "h100x2").GPUs[1]
	if err := s.SetMode(t.Context(), g.Name(), gpu.ModeEnabled); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, start := range []int{1, 3} {
		want[carve(t, s, g.Name(), gpu.Placement{Profile: 19, Start: start, Size: 1}).UUID] = true
	}
	m, err := s.Measure(t.Context(), g.Name())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for uuid, part := range m.Instances {
		got[uuid] = true
		if total := part[gpu.MemoryTotal]; total <= 0 || total >= m.GPU[gpu.MemoryTotal]/4 {
			t.Errorf("memory of %s: %v bytes, of the GPU %v", uuid, total, m.GPU[gpu.MemoryTotal])
		}
		if _, has := part[gpu.Utilization]; has {
			t.Errorf("%s has a utilization, which NVML does not report", uuid)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("MIG devices (-want +got):\n%s", diff)
	}
}

func TestMeasureWithErrors(t *testing.T) {
	s, dir := open(t, "h100x2")
	gpus := gputest.Node(t, "h100x2").GPUs

	t.Run("one sensor fails", func(t *testing.T) {
		if err := fakegpu.Fail(dir, "nvmlDeviceGetRemappedRows", uint32(nvml.ERROR_UNKNOWN), 1); err != nil {
			t.Fatal(err)
		}
		m, err := s.Measure(t.Context(), gpus[0].Name())
		if err == nil || errors.Is(err, gpu.ErrLost) {
			t.Errorf("error: %v, want one that names the call", err)
		}
		if _, has := m.GPU[gpu.RemapFailed]; has || m.GPU[gpu.MemoryTotal] == 0 {
			t.Errorf("got %v, want everything else", m.GPU)
		}
	})

	t.Run("the driver goes in between", func(t *testing.T) {
		if err := fakegpu.Slow(dir, "nvmlDeviceGetMemoryInfo_v2", 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := s.Measure(t.Context(), gpus[0].Name())
			ended <- err
		}()
		if err := s.Reopen(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil && !errors.Is(err, gpu.ErrNoDriver) {
			t.Errorf("error: %v, want none or no driver", err)
		}
	})

	t.Run("the GPU is lost", func(t *testing.T) {
		if err := fakegpu.Lose(dir, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Measure(t.Context(), gpus[1].Name()); !errors.Is(err, gpu.ErrLost) {
			t.Errorf("error: %v, want lost", err)
		}
	})

	t.Run("no such GPU", func(t *testing.T) {
		if _, err := s.Measure(t.Context(), "gpu-nowhere"); !errors.Is(err, gpu.ErrLost) {
			t.Errorf("error: %v, want lost", err)
		}
	})
}

func TestNumberIn(t *testing.T) {
	bytes := func(value uint64) (b [8]byte) {
		binary.NativeEndian.PutUint64(b[:], value)
		return b
	}
	tests := map[string]struct {
		kind  nvml.ValueType
		value [8]byte
		want  float64
		is    bool
	}{
		"double":         {nvml.VALUE_TYPE_DOUBLE, bytes(math.Float64bits(1.5)), 1.5, true},
		"unsigned":       {nvml.VALUE_TYPE_UNSIGNED_INT, bytes(7), 7, true},
		"unsigned long":  {nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, bytes(1 << 40), 1 << 40, true},
		"signed long":    {nvml.VALUE_TYPE_SIGNED_LONG_LONG, bytes(math.MaxUint64), -1, true},
		"signed":         {nvml.VALUE_TYPE_SIGNED_INT, bytes(math.MaxUint32), -1, true},
		"short":          {nvml.VALUE_TYPE_UNSIGNED_SHORT, bytes(9), 9, true},
		"unknown":        {nvml.VALUE_TYPE_COUNT, bytes(9), 0, false},
		"not filled yet": {nvml.ValueType(99), bytes(9), 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, is := numberIn(nvml.FieldValue{ValueType: uint32(test.kind), Value: test.value})
			if got != test.want || is != test.is {
				t.Errorf("got %v %v, want %v %v", got, is, test.want, test.is)
			}
		})
	}
}
