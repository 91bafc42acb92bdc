package fakegpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// TestWalk creates and destroys at random, through NVML and in the reference model, and compares
// every answer and, now and then, the whole state.
func TestWalk(t *testing.T) {
	const steps = 4000
	tests := map[string]struct {
		machine string
		gpu     int
		rules   refRules
	}{
		"A100":         {"mixed16", 3, sevenSlices(false)},
		"H100":         {"h100x2", 1, sevenSlices(true)},
		"B300":         {"b300x2", 0, sevenSlices(true)},
		"A30":          {"a30x4l40sx4", 1, a30Rules()},
		"RTX-PRO-6000": {"rtxpro6000x4", 2, rtxPro6000Rules()},
	}
	for model, test := range tests {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			withNVML(t, Spec{Machine: test.machine}, func(t *testing.T, _ string, lib nvml.Interface) {
				d := gpuAt(t, lib, test.gpu)
				enable(t, d)
				w := &walker{
					device: d, model: &refGPU{rules: test.rules}, random: rand.New(rand.NewPCG(1, uint64(test.gpu))),
					uuids: map[string]string{},
				}
				for step := range steps {
					w.step(t)
					if step%50 == 0 {
						w.compare(t)
					}
					if t.Failed() {
						t.Fatalf("differs at step %d", step)
					}
				}
			})
		})
	}
}

// walker walks on a GPU and on its model.
type walker struct {
	device nvml.Device
	model  *refGPU
	random *rand.Rand
	uuids  map[string]string // the place of every UUID ever seen
}

func (w *walker) step(t *testing.T) {
	switch n := w.random.IntN(20); {
	case n < 6:
		w.create(t)
	case n < 7:
		w.createAnywhere(t)
	case n < 11:
		w.createCompute(t)
	case n < 14:
		w.destroyCompute(t)
	case n < 18:
		w.destroy(t)
	case n < 19:
		w.capacity(t)
	default:
		w.disable(t)
	}
}

func (w *walker) create(t *testing.T) {
	id, start, size := w.model.anyProfile(w.random)
	want := w.model.fits(id, start, size)
	gi, ret := tryCreate(w.device, id, start, size)
	w.equal(t, fmt.Sprintf("create %d at %d", id, start), ret, want)
	if ret == nvml.SUCCESS {
		w.model.instances = append(w.model.instances, &refInstance{profile: id, start: start})
		w.placed(t, gi, id)
	}
}

// createAnywhere leaves the placement to the driver: any free one is right.
func (w *walker) createAnywhere(t *testing.T) {
	id, _, _ := w.model.anyProfile(w.random)
	want := nvml.SUCCESS
	if _, known := w.model.rules.profiles[id]; !known {
		want = nvml.ERROR_INVALID_ARGUMENT
	} else if w.model.capacity(id) == 0 {
		want = nvml.ERROR_INSUFFICIENT_RESOURCES
	}
	gi, ret := w.device.CreateGpuInstance(&nvml.GpuInstanceProfileInfo{Id: uint32(id)})
	w.equal(t, fmt.Sprintf("create %d anywhere", id), ret, want)
	if ret == nvml.SUCCESS {
		start, size := w.placed(t, gi, id)
		w.equal(t, fmt.Sprintf("the place %d", start), w.model.fits(id, start, size), nvml.SUCCESS)
		w.model.instances = append(w.model.instances, &refInstance{profile: id, start: start})
	}
}

func (w *walker) placed(t *testing.T, gi nvml.GpuInstance, id int) (start, size int) {
	info, ret := gi.GetInfo()
	w.equal(t, "GetInfo", ret, nvml.SUCCESS)
	if int(info.ProfileId) != id {
		t.Errorf("created profile %d, not %d", info.ProfileId, id)
	}
	return int(info.Placement.Start), int(info.Placement.Size)
}

// pick chooses an instance and finds it in NVML by its placement.
func (w *walker) pick(t *testing.T) (*refInstance, nvml.GpuInstance) {
	if len(w.model.instances) == 0 {
		return nil, nil
	}
	chosen := w.model.instances[w.random.IntN(len(w.model.instances))]
	list, ret := w.device.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(chosen.profile), InstanceCount: 7})
	w.equal(t, "GetGpuInstances", ret, nvml.SUCCESS)
	for _, gi := range list {
		if start, _ := w.placed(t, gi, chosen.profile); start == chosen.start {
			return chosen, gi
		}
	}
	t.Errorf("profile %d at %d is not in NVML's list", chosen.profile, chosen.start)
	return nil, nil
}

func (w *walker) createCompute(t *testing.T) {
	chosen, gi := w.pick(t)
	if gi == nil {
		return
	}
	id := w.random.IntN(9)
	compute, want := w.model.place(chosen, id)
	ci, ret := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: uint32(id)})
	w.equal(t, fmt.Sprintf("create compute %d in %+v", id, chosen), ret, want)
	if ret != nvml.SUCCESS {
		return
	}
	chosen.computes = append(chosen.computes, compute)
	info, ret := ci.GetInfo()
	w.equal(t, "ComputeInstance.GetInfo", ret, nvml.SUCCESS)
	if got := (refCompute{int(info.Id), int(info.ProfileId), int(info.Placement.Start), int(info.Placement.Size)}); got != compute {
		t.Errorf("compute instance %+v, want %+v", got, compute)
	}
	uuid, ret := info.Device.GetUUID()
	w.equal(t, "GetUUID", ret, nvml.SUCCESS)
	start, size := w.placed(t, gi, chosen.profile)
	place := fmt.Sprint(start, size, compute.start, compute.size)
	if before, known := w.uuids[uuid]; known && before != place {
		t.Errorf("UUID %s is at %s, and was at %s", uuid, place, before)
	}
	w.uuids[uuid] = place
}

func (w *walker) destroyCompute(t *testing.T) {
	chosen, gi := w.pick(t)
	if gi == nil {
		return
	}
	id := w.random.IntN(8)
	at := slices.IndexFunc(chosen.computes, func(c refCompute) bool { return c.id == id })
	ci, ret := gi.GetComputeInstanceById(id)
	if at < 0 {
		w.equal(t, "GetComputeInstanceById", ret, nvml.ERROR_NOT_FOUND)
		return
	}
	w.equal(t, "GetComputeInstanceById", ret, nvml.SUCCESS)
	w.equal(t, "ComputeInstance.Destroy", ci.Destroy(), nvml.SUCCESS)
	chosen.computes = slices.Delete(chosen.computes, at, at+1)
}

func (w *walker) destroy(t *testing.T) {
	chosen, gi := w.pick(t)
	if gi == nil {
		return
	}
	want := nvml.SUCCESS
	if len(chosen.computes) > 0 {
		want = nvml.ERROR_IN_USE
	}
	w.equal(t, "GpuInstance.Destroy", gi.Destroy(), want)
	if want == nvml.SUCCESS {
		w.model.instances = slices.DeleteFunc(w.model.instances, func(i *refInstance) bool { return i == chosen })
	}
}

func (w *walker) capacity(t *testing.T) {
	id, _, _ := w.model.anyProfile(w.random)
	count, ret := w.device.GetGpuInstanceRemainingCapacity(&nvml.GpuInstanceProfileInfo{Id: uint32(id)})
	if _, known := w.model.rules.profiles[id]; !known {
		w.equal(t, "capacity of an unknown profile", ret, nvml.ERROR_NOT_SUPPORTED)
		return
	}
	w.equal(t, "GetGpuInstanceRemainingCapacity", ret, nvml.SUCCESS)
	if want := w.model.capacity(id); count != want {
		t.Errorf("room for %d of profile %d, want %d", count, id, want)
	}
}

// disable must fail while any instance exists.
func (w *walker) disable(t *testing.T) {
	if len(w.model.instances) == 0 {
		return
	}
	_, ret := w.device.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	w.equal(t, "disable MIG", ret, nvml.ERROR_IN_USE)
}

func (w *walker) equal(t *testing.T, what string, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v; the model holds %s", what, name(got), name(want), w.model)
	}
}

func (g *refGPU) String() string {
	var texts []string
	for _, i := range g.instances {
		texts = append(texts, fmt.Sprintf("%+v", *i))
	}
	return fmt.Sprint(texts)
}

// compare lists everything through NVML and compares it with the model.
func (w *walker) compare(t *testing.T) {
	t.Helper()
	want := []string{}
	computes := 0
	for _, i := range w.model.instances {
		want = append(want, fmt.Sprintf("%d at %d", i.profile, i.start))
		computes += len(i.computes)
	}
	got := []string{}
	for id := range w.model.rules.profiles {
		list, ret := w.device.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(id), InstanceCount: 7})
		w.equal(t, "GetGpuInstances", ret, nvml.SUCCESS)
		for _, gi := range list {
			start, _ := w.placed(t, gi, id)
			got = append(got, fmt.Sprintf("%d at %d", id, start))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	devices := 0
	for {
		if _, ret := w.device.GetMigDeviceHandleByIndex(devices); ret != nvml.SUCCESS {
			break
		}
		devices++
	}
	if devices != computes {
		t.Errorf("%d MIG devices, want %d", devices, computes)
	}
}
