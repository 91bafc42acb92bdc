package gpu_test

import (
	"errors"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

func TestCost(t *testing.T) {
	t.Parallel()
	h100, rtx := gputest.Geometry(t, "h100-80"), gputest.Geometry(t, "rtxpro6000-96")
	tests := map[string]struct {
		geometry *gpu.Geometry
		use      gpu.Use
		want     gpu.Cost
	}{
		// Engines of kinds that do not bind are not part of a cost.
		"a slice":                 {h100, mig(19, 3, 1), gpu.Cost{Slices: gpu.SpanMask(3, 1)}},
		"a slice with media":      {h100, mig(20, 3, 1), gpu.Cost{Slices: gpu.SpanMask(3, 1), Engines: gpu.Engines{OFA: 1}}},
		"the largest instance":    {h100, mig(0, 0, 8), gpu.Cost{Slices: gpu.SpanMask(0, 8), Engines: gpu.Engines{OFA: 1}}},
		"a whole GPU":             {h100, whole(gpu.Whole), gpu.Cost{Slices: gpu.SpanMask(0, 8), Engines: gpu.Engines{OFA: 1}}},
		"a share":                 {h100, whole(gpu.TimeShare), gpu.Cost{Slices: gpu.SpanMask(0, 8), Engines: gpu.Engines{OFA: 1}}},
		"a quarter":               {rtx, mig(14, 3, 3), gpu.Cost{Slices: gpu.SpanMask(3, 3), Engines: gpu.Engines{Decoder: 1}}},
		"a quarter without media": {rtx, mig(67, 3, 3), gpu.Cost{Slices: gpu.SpanMask(3, 3)}},
		"a quarter with all":      {rtx, mig(65, 3, 3), gpu.Cost{Slices: gpu.SpanMask(3, 3), Engines: gpu.Engines{OFA: 1, Decoder: 4}}},
		"all of it":               {rtx, whole(gpu.VFIO), gpu.Cost{Slices: gpu.SpanMask(0, 12), Engines: gpu.Engines{OFA: 1, Decoder: 4}}},
		"a GPU without MIG":       {nil, whole(gpu.MPS), gpu.Cost{Slices: gpu.SpanMask(0, 1)}},
		"a monitor":               {h100, whole(gpu.Monitor), gpu.Cost{}},
	}
	for name, test := range tests {
		if got, err := test.geometry.Cost(test.use); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	for _, use := range []gpu.Use{{}, whole(99), mig(19, 7, 1), mig(99, 0, 1)} {
		if got, err := h100.Cost(use); !errors.Is(err, gpu.ErrUnsupported) || got != (gpu.Cost{}) {
			t.Errorf("%v: %+v, %v", use, got, err)
		}
	}
}
