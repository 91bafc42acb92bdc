package nvml

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// partitionable returns a GPU of each product whose MIG mode is enabled or can be enabled without a reset.
func partitionable(t *testing.T, s *Session) []gpu.GPU {
	t.Helper()
	node, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []gpu.GPU
	for _, g := range node.GPUs {
		same := func(other gpu.GPU) bool { return other.Product == g.Product }
		if (g.Mode == gpu.ModeEnabled || g.TogglesMIG()) && !slices.ContainsFunc(all, same) {
			if err := s.SetMode(t.Context(), g.Name(), gpu.ModeEnabled); err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
		}
	}
	return all
}

// carve creates the MIG device at the placement.
func carve(t *testing.T, s *Session, gpuName string, p gpu.Placement) gpu.Instance {
	t.Helper()
	created, err := s.Create(t.Context(), gpuName, p)
	if err != nil {
		t.Fatalf("Create %v: %v", p, err)
	}
	completed, err := s.Complete(t.Context(), created)
	if err != nil {
		t.Fatalf("Complete %v: %v", created, err)
	}
	return completed
}

// list returns the MIG devices of the hardware.
func list(t *testing.T, s *Session, gpuName string) []gpu.Instance {
	t.Helper()
	instances, err := s.List(t.Context(), gpuName)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return instances
}

// Every published placement can be created and then has the promised properties, on every model: also where several
// compute instances have the same number of slices, and where the GPU instance has fewer SMs than the GPU.
func TestEveryPlacement(t *testing.T) {
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) {
			s, _ := open(t, m.Name)
			for _, g := range partitionable(t, s) {
				seen[g.Product] = true
				for _, profile := range g.Geometry.Profiles() {
					for _, p := range g.Geometry.Placements(profile.ID) {
						carveAndDestroy(t, s, g, profile, p)
					}
				}
			}
		})
	}
	if len(seen) < 8 {
		t.Errorf("only %d products were partitioned: %v", len(seen), seen)
	}
}

func carveAndDestroy(t *testing.T, s *Session, g gpu.GPU, profile gpu.Profile, p gpu.Placement) {
	t.Helper()
	made := carve(t, s, g.Name(), p)
	if err := made.Verify(profile, p); err != nil {
		t.Errorf("%s: %v", g.Product, err)
	}
	if diff := cmp.Diff([]gpu.Instance{made}, list(t, s, g.Name())); diff != "" {
		t.Errorf("%s: List after %v (-want +got):\n%s", g.Product, p, diff)
	}
	if err := s.Destroy(t.Context(), made); err != nil {
		t.Errorf("%s: %v", g.Product, err)
	}
	if left := list(t, s, g.Name()); len(left) != 0 {
		t.Fatalf("%s: after Destroy: %v is left", g.Product, left)
	}
}

func at(profile, start, size int) gpu.Placement {
	return gpu.Placement{Profile: profile, Start: start, Size: size}
}

func TestListIsByStart(t *testing.T) {
	s, dir := open(t, "h100x2")
	g := partitionable(t, s)[0]
	wide := carve(t, s, g.Name(), at(9, 4, 4))
	narrow := carve(t, s, g.Name(), at(19, 3, 1))
	half, err := s.Create(t.Context(), g.Name(), at(14, 0, 2))
	if err != nil {
		t.Fatal(err)
	}
	if half.CI != gpu.NoCompute || half.UUID != "" {
		t.Errorf("Create returned a compute instance: %+v", half)
	}
	if diff := cmp.Diff([]gpu.Instance{half, narrow, wide}, list(t, s, g.Name())); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	node, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]gpu.Instance{half, narrow, wide}, node.GPUs[0].Instances); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
	truth, err := fakegpu.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range truth.GPUs[0].Instances {
		if i.Start == wide.Placement.Start && (i.ID != wide.GI || i.Computes[0].UUID != wide.UUID) {
			t.Errorf("the hardware has %+v, List returns %+v", i, wide)
		}
	}
}

// A handle that becomes invalid during List must not hide the other instances.
func TestListWhileOthersDestroy(t *testing.T) {
	s, dir := open(t, "h100x2")
	g := partitionable(t, s)[0]
	want := []gpu.Instance{carve(t, s, g.Name(), at(19, 0, 1)), carve(t, s, g.Name(), at(19, 1, 1))}
	for _, code := range []nvml.Return{nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND} {
		if err := fakegpu.Fail(dir, "nvmlGpuInstanceGetInfo", uint32(code), 1); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list(t, s, g.Name())); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	// Every case has its own machine: a destroy that fails halfway leaves half an instance.
	var (
		s    *Session
		dir  string
		made gpu.Instance
	)
	g, off := gputest.Node(t, "h100x2").GPUs[0], gputest.Node(t, "h100x2").GPUs[1].Name()
	fail := func(function string, code nvml.Return, f func() error) func() error {
		return func() error {
			if err := fakegpu.Fail(dir, function, uint32(code), 1); err != nil {
				t.Fatal(err)
			}
			return f()
		}
	}
	create := func(gpuName string, p gpu.Placement) func() error {
		return func() error {
			_, err := s.Create(t.Context(), gpuName, p)
			return err
		}
	}
	tests := map[string]struct {
		try     func() error
		want    error
		message string
	}{
		"occupied":           {create(g.Name(), at(19, 2, 1)), gpu.ErrOccupied, "nvmlDeviceCreateGpuInstanceWithPlacement"},
		"MIG is off":         {create(off, at(19, 2, 1)), gpu.ErrUnsupported, "nvmlDeviceCreateGpuInstanceWithPlacement"},
		"no such profile":    {create(g.Name(), at(77, 0, 1)), gpu.ErrUnsupported, "no such MIG profile"},
		"no such start":      {create(g.Name(), at(9, 2, 4)), gpu.ErrUnsupported, "takes 4 slices from [0 4]"},
		"no such GPU":        {create("gpu-0000-99-00-0", at(9, 4, 4)), gpu.ErrLost, "no such GPU"},
		"lost":               {fail("nvmlDeviceCreateGpuInstanceWithPlacement", nvml.ERROR_GPU_IS_LOST, create(g.Name(), at(9, 4, 4))), gpu.ErrLost, ""},
		"driver gone":        {fail("nvmlDeviceCreateGpuInstanceWithPlacement", nvml.ERROR_UNINITIALIZED, create(g.Name(), at(9, 4, 4))), gpu.ErrNoDriver, ""},
		"compute instance":   {fail("nvmlComputeInstanceDestroy", nvml.ERROR_IN_USE, func() error { return s.Destroy(t.Context(), made) }), gpu.ErrBusy, "nvmlComputeInstanceDestroy"},
		"GPU instance":       {fail("nvmlGpuInstanceDestroy", nvml.ERROR_IN_USE, func() error { return s.Destroy(t.Context(), made) }), gpu.ErrBusy, "nvmlGpuInstanceDestroy"},
		"no compute profile": {fail("nvmlGpuInstanceCreateComputeInstance", nvml.ERROR_INSUFFICIENT_RESOURCES, func() error { _, err := s.Complete(t.Context(), made); return err }), gpu.ErrOccupied, ""},
		"complete another one": {func() error {
			_, err := s.Complete(t.Context(), gpu.Instance{GPU: g.Name(), GI: made.GI, Placement: at(9, 4, 4)})
			return err
		}, nil, "was replaced by another"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, dir = open(t, "h100x2")
			made = carve(t, s, partitionable(t, s)[0].Name(), at(9, 0, 4))
			err := test.try()
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.message)
			}
		})
	}
}

func TestDestroyIsIdempotent(t *testing.T) {
	s, dir := open(t, "h100x2")
	g := partitionable(t, s)[0]
	destroy := func(i gpu.Instance) {
		t.Helper()
		if err := s.Destroy(t.Context(), i); err != nil {
			t.Errorf("Destroy %v: %v", i, err)
		}
	}

	made := carve(t, s, g.Name(), at(19, 0, 1))
	if err := fakegpu.Fail(dir, "nvmlGpuInstanceDestroy", uint32(nvml.ERROR_IN_USE), 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Destroy(t.Context(), made); !errors.Is(err, gpu.ErrBusy) {
		t.Fatalf("a GPU instance in use: got %v", err)
	}
	if left := list(t, s, g.Name()); len(left) != 1 || left[0].CI != gpu.NoCompute {
		t.Errorf("after the first half: %v is left", left)
	}
	destroy(made)
	destroy(made)

	// A crash between the creation of the compute instance and its record.
	half, err := s.Create(t.Context(), g.Name(), at(19, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Complete(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	destroy(half)
	if left := list(t, s, g.Name()); len(left) != 0 {
		t.Errorf("%v is left", left)
	}

	if err := s.SetMode(t.Context(), g.Name(), gpu.ModeDisabled); err != nil {
		t.Fatal(err)
	}
	destroy(made)
}

// Ids are reused: the id of an instance that no longer exists may belong to a foreign instance.
func TestDestroyKeepsOtherInstances(t *testing.T) {
	s, _ := open(t, "h100x2")
	g := partitionable(t, s)[0]
	old := carve(t, s, g.Name(), at(9, 0, 4))
	if err := s.Destroy(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	other := carve(t, s, g.Name(), at(9, 4, 4))
	for _, i := range []gpu.Instance{old, {GPU: old.GPU, Placement: old.Placement, GI: other.GI, CI: gpu.NoCompute}} {
		if err := s.Destroy(t.Context(), i); err != nil {
			t.Errorf("Destroy of what is gone: %v", err)
		}
	}
	if left := list(t, s, g.Name()); !slices.Contains(left, other) {
		t.Errorf("%v was destroyed in the name of %v", other, old)
	}
	if err := s.Destroy(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if again := carve(t, s, g.Name(), old.Placement); again != old {
		t.Errorf("at the place of the old instance: %+v, want the same, %+v", again, old)
	}
}

// If the driver returns the parent device, as its header documents, the MIG device is found by its ids.
func TestMIGDeviceBehindTheParent(t *testing.T) {
	s, _ := open(t, "h100x2")
	g := partitionable(t, s)[0]
	carve(t, s, g.Name(), at(19, 6, 1))
	want := carve(t, s, g.Name(), at(19, 1, 1))
	uuid, err := withGPU(t.Context(), s, g.Name(), func(f *gpuInfo) (string, error) {
		mig, err := f.migDevice(nvml.ComputeInstanceInfo{Device: f.handle, Id: uint32(want.CI)}, want.GI)
		if err != nil {
			return "", err
		}
		uuid, code := mig.GetUUID()
		return uuid, newCallError("nvmlDeviceGetUUID", code)
	})
	if err != nil || uuid != want.UUID {
		t.Errorf("got %s, %v, want %s", uuid, err, want.UUID)
	}
	if _, err := withGPU(t.Context(), s, g.Name(), func(f *gpuInfo) (nvml.Device, error) {
		return f.migDevice(nvml.ComputeInstanceInfo{Device: f.handle, Id: 5}, want.GI)
	}); err == nil {
		t.Error("a compute instance that is not there has a MIG device")
	}
}

// called returns the NVML functions that f calls, each once.
func called(t *testing.T, f func()) []string {
	t.Helper()
	log := t.TempDir() + "/calls"
	t.Setenv("FAKE_NVML_LOG", log)
	f()
	os.Unsetenv("FAKE_NVML_LOG")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	functions := strings.Fields(string(text))
	slices.Sort(functions)
	return slices.Compact(functions)
}

// If any one call fails once while a MIG device is created and destroyed, List matches the hardware, and what was
// created can be destroyed.
func TestEveryCarveCallFailsOnce(t *testing.T) {
	s, dir := open(t, "b300x2")
	g := partitionable(t, s)[0]
	cycle := func() (made gpu.Instance, err error) {
		if made, err = s.Create(t.Context(), g.Name(), at(19, 2, 1)); err != nil {
			return made, err
		}
		if made, err = s.Complete(t.Context(), made); err != nil {
			return made, err
		}
		return made, s.Destroy(t.Context(), made)
	}
	functions := called(t, func() {
		if _, err := cycle(); err != nil {
			t.Fatal(err)
		}
	})
	if len(functions) < 10 {
		t.Fatalf("the log of a clean run has only %v", functions)
	}
	for _, function := range functions {
		for _, code := range []nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_IN_USE, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND} {
			name := fmt.Sprintf("%s fails with %d", function, int(code))
			if err := fakegpu.Fail(dir, function, uint32(code), 1); err != nil {
				t.Fatal(err)
			}
			made, err := cycle()
			if err := fakegpu.Reset(dir); err != nil {
				t.Fatal(err)
			}
			left := list(t, s, g.Name())
			if err == nil && len(left) > 0 {
				t.Errorf("%s: no error, and %v is left", name, left)
			}
			for _, i := range left {
				if err := s.Destroy(t.Context(), i); err != nil {
					t.Errorf("%s: take back %v: %v", name, i, err)
				}
			}
			if left := list(t, s, g.Name()); len(left) > 0 {
				t.Fatalf("%s: %v cannot be taken back (made %+v, %v)", name, left, made, err)
			}
		}
	}
}
