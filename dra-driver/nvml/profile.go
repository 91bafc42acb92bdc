package nvml

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// rawProfile is NVML's data of one MIG profile.
type rawProfile struct {
	// enum is the NVML_GPU_INSTANCE_PROFILE_ constant under which the profile was found.
	enum int
	// name is empty if the driver does not report it, as some do while MIG is disabled.
	name       string
	info       nvml.GpuInstanceProfileInfo
	placements []nvml.GpuInstancePlacement
}

// models caches one geometry per distinct set of profiles.
type models struct {
	mutex sync.Mutex
	known map[string]*gpu.Geometry
}

// geometry returns the geometry of a GPU with the profiles and memoryBytes of memory; nil without profiles. Two GPUs
// with equal profiles get the same pointer.
func (m *models) geometry(raw []rawProfile, memoryBytes uint64) (*gpu.Geometry, error) {
	var profiles []gpu.Profile
	for _, r := range raw {
		if len(r.placements) > 0 {
			profiles = append(profiles, r.profile(memoryBytes))
		}
	}
	if len(profiles) == 0 {
		return nil, nil
	}
	key := fmt.Sprint(profiles)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if known := m.known[key]; known != nil {
		return known, nil
	}
	geometry, err := gpu.NewGeometry(profiles)
	if err != nil {
		return nil, err
	}
	if m.known == nil {
		m.known = map[string]*gpu.Geometry{}
	}
	m.known[key] = geometry
	return geometry, nil
}

func (r rawProfile) profile(memoryBytes uint64) gpu.Profile {
	p := gpu.Profile{
		ID:              int(r.info.Id),
		Name:            strings.TrimPrefix(r.name, "MIG "),
		ComputeSlices:   int(r.info.SliceCount),
		Size:            int(r.placements[0].Size),
		MaxInstances:    int(r.info.InstanceCount),
		Multiprocessors: int(r.info.MultiprocessorCount),
		MemoryBytes:     r.info.MemorySizeMB << 20,
		Engines: gpu.Engines{
			OFA: int(r.info.OfaCount), JPEG: int(r.info.JpegCount), Decoder: int(r.info.DecoderCount),
			Encoder: int(r.info.EncoderCount), Copy: int(r.info.CopyEngineCount),
		},
	}
	if p.Name == "" {
		p.Name = fmt.Sprintf("%dg.%dgb%s", p.ComputeSlices, nominalGB(p.MemoryBytes, memoryBytes), variant(r.enum))
	}
	for _, placement := range r.placements {
		p.Starts = append(p.Starts, int(placement.Start))
	}
	return p
}

// nominalGB returns the memory in GB that a profile's name has: the GPU's GiB, rounded up, times the profile's part of
// it in eighths, rounded up. Where the GPU's is unknown, it is that of the profile in GiB, rounded up.
func nominalGB(profileBytes, gpuBytes uint64) int {
	if gpuBytes == 0 {
		return int(math.Ceil(float64(profileBytes) / (1 << 30)))
	}
	eighths := math.Ceil(8 * float64(profileBytes) / float64(gpuBytes))
	total := math.Ceil(float64(gpuBytes) / (1 << 30))
	return int(math.Round(eighths / 8 * total))
}

// variant returns the suffix of a profile's name, which follows its size.
func variant(enum int) string {
	switch enum {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:
		return "+me"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX,
		nvml.GPU_INSTANCE_PROFILE_3_SLICE_GFX, nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:
		return "+gfx"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME:
		return "+me.all"
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:
		return "-me"
	}
	return ""
}

// spanning returns the profile of the compute instance that spans its GPU instance: the one with the most
// multiprocessors. Two profiles can have equal numbers of compute slices and different numbers of multiprocessors, so
// neither the name nor the number of slices decides.
func spanning(profiles []nvml.ComputeInstanceProfileInfo) (nvml.ComputeInstanceProfileInfo, error) {
	if len(profiles) == 0 {
		return nvml.ComputeInstanceProfileInfo{}, fmt.Errorf("the GPU instance has no compute instance profile: %w", gpu.ErrUnsupported)
	}
	return slices.MaxFunc(profiles, func(a, b nvml.ComputeInstanceProfileInfo) int {
		return cmp.Or(cmp.Compare(a.MultiprocessorCount, b.MultiprocessorCount), cmp.Compare(a.SliceCount, b.SliceCount))
	}), nil
}
