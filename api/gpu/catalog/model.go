// Package catalog is the catalogue of known GPU models and machines, for `tessera template`, tests, the fake GPU and the
// benchmarks. The agent does not link it: on a node, the geometry is read from NVML.
//
// Values come from published nvidia-smi dumps of real hardware and NVIDIA's MIG user guide. Where a value is inferred, the
// model's note states it.
package catalog

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
)

//go:embed models/*.json machines/*.json
var files embed.FS

// Model is a GPU model.
type Model struct {
	// Name is the key in the catalogue, such as h100-80.
	Name string `json:"name"`
	// Product, Brand and Architecture are NVML's names (gpu.GPU).
	Product      string `json:"product"`
	Brand        string `json:"brand"`
	Architecture string `json:"architecture"`
	// ComputeMajor and ComputeMinor are the CUDA compute capability.
	ComputeMajor int `json:"computeMajor"`
	ComputeMinor int `json:"computeMinor"`
	// MemoryMiB and Multiprocessors are the totals of the whole GPU.
	MemoryMiB uint64 `json:"memoryMiB"`
	// ReservedMiB is the part of the memory that the driver reserves (nvmlMemory_v2_t): read from hardware for the H100 and the H200, for the T4 from
	// KAI-Scheduler's issue 2212, and 0 for models for which no reading is published.
	ReservedMiB            uint64 `json:"reservedMiB"`
	Multiprocessors        int    `json:"multiprocessors"`
	CoresPerMultiprocessor int    `json:"coresPerMultiprocessor"`
	// PCIDevice and PCISubsystem are device and vendor ids in one number: 0x233010de.
	PCIDevice    PCIID `json:"pciDevice"`
	PCISubsystem PCIID `json:"pciSubsystem"`
	// NVLinks is the number of NVLinks that the GPU has, NVLinkVersion their generation.
	NVLinks       int `json:"nvlinks"`
	NVLinkVersion int `json:"nvlinkVersion"`
	// ComputeSlices and MaxInstances bound what MIG can hold; 0 on a model without MIG.
	ComputeSlices int `json:"computeSlices"`
	MaxInstances  int `json:"maxInstances"`
	// Note states which values are inferred and not read from hardware.
	Note string `json:"note"`
	// Profiles are the MIG profiles; none on a model without MIG.
	Profiles []Profile `json:"profiles"`
}

// PCIID is a device id and a vendor id, written in hexadecimal.
type PCIID uint32

// UnmarshalText reads a hexadecimal number such as 0x233010de.
func (id *PCIID) UnmarshalText(text []byte) error {
	number, err := strconv.ParseUint(string(text), 0, 32)
	*id = PCIID(number)
	return err
}

// Profile is a MIG profile of a model.
type Profile struct {
	// Enum is the NVML_GPU_INSTANCE_PROFILE_* constant, ID the id that nvidia-smi prints.
	Enum int `json:"enum"`
	ID   int `json:"id"`
	// Name, ComputeSlices, Size, Starts, MaxInstances and Engines are those of gpu.Profile.
	Name            string      `json:"name"`
	ComputeSlices   int         `json:"computeSlices"`
	Size            int         `json:"size"`
	Starts          []int       `json:"starts"`
	MaxInstances    int         `json:"maxInstances"`
	Multiprocessors int         `json:"multiprocessors"`
	MemoryMiB       uint64      `json:"memoryMiB"`
	Engines         gpu.Engines `json:"engines"`
	// Graphics reports a profile that can run graphics.
	Graphics bool `json:"graphics"`
	// Compute are the compute instances that a GPU instance of this profile can hold.
	Compute []Compute `json:"compute"`
}

// Compute is a compute instance profile inside a GPU instance.
type Compute struct {
	// Enum is the NVML_COMPUTE_INSTANCE_PROFILE_* constant, ID the id that nvidia-smi prints.
	Enum int `json:"enum"`
	ID   int `json:"id"`
	// Slices is the size in compute slices, Starts the legal first slices in the GPU instance.
	Slices          int   `json:"slices"`
	Multiprocessors int   `json:"multiprocessors"`
	Starts          []int `json:"starts"`
}

// Models returns every model of the catalogue in order of name.
func Models() ([]Model, error) { return read[Model]("models") }

// FindModel returns the model with the name; an error lists the names.
func FindModel(name string) (Model, error) {
	models, err := Models()
	if err != nil {
		return Model{}, err
	}
	return find(models, name, func(m Model) string { return m.Name })
}

// MIG reports whether the model can be partitioned.
func (m Model) MIG() bool { return len(m.Profiles) > 0 }

// Geometry returns the geometry of the model as NVML would report it; nil without MIG.
func (m Model) Geometry() (*gpu.Geometry, error) {
	if !m.MIG() {
		return nil, nil
	}
	profiles := make([]gpu.Profile, len(m.Profiles))
	for i, p := range m.Profiles {
		profiles[i] = gpu.Profile{
			ID:              p.ID,
			Name:            p.Name,
			ComputeSlices:   p.ComputeSlices,
			Size:            p.Size,
			Starts:          slices.Clone(p.Starts),
			MaxInstances:    p.MaxInstances,
			Multiprocessors: p.Multiprocessors,
			MemoryBytes:     p.MemoryMiB << 20,
			Engines:         p.Engines,
		}
	}
	geometry, err := gpu.NewGeometry(profiles)
	if err != nil {
		return nil, fmt.Errorf("geometry of %s: %w", m.Name, err)
	}
	return geometry, nil
}

// read decodes all files of a folder of the catalogue, in order of file name.
func read[T any](folder string) ([]T, error) {
	entries, err := files.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	values := make([]T, len(entries))
	for i, entry := range entries {
		data, err := files.ReadFile(path.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &values[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name(), err)
		}
	}
	return values, nil
}

func find[T any](values []T, name string, key func(T) string) (T, error) {
	var names []string
	for _, value := range values {
		if key(value) == name {
			return value, nil
		}
		names = append(names, key(value))
	}
	var none T
	return none, fmt.Errorf("%q is not in the catalog: must be one of %s", name, strings.Join(names, ", "))
}
